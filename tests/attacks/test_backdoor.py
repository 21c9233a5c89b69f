from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from smartfl.aggregators.fedavg import FedAvg
from smartfl.attacks.backdoor import Backdoor, paint
from smartfl.attacks.base import Knowledge
from smartfl.data.dataset import Dataset, Dense, Inputs, Sparse
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.rng import seeded
from smartfl.types import Updates


def every(inputs: Inputs) -> torch.Tensor:
    return inputs[torch.arange(len(inputs))]


def test_a_square_in_the_corner_of_pictures() -> None:
    """uint8 (N, 1, 3, 3) with size 2: four pixels become 255, i.e. 1.0 for the model, of the chosen sample alone."""
    inputs = Dense(torch.zeros((2, 1, 3, 3), dtype=torch.uint8))
    painted = every(paint(inputs, torch.tensor([1]), 2))
    assert painted[0].sum() == 0
    assert painted[1, 0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert inputs.values.sum() == 0


def test_pictures_without_channel_and_flat_samples() -> None:
    """(N, 2, 2) is a picture; of (N, 4) the last two features are set; floats get the largest value there."""
    pictures = Dense(torch.tensor([[[5.0, 0.0], [0.0, 0.0]]]))
    assert every(paint(pictures, torch.tensor([0]), 1)).tolist() == [[[5, 0], [0, 5]]]
    flat = Dense(torch.tensor([[1.0, 7.0, 0.0, 0.0]]))
    assert every(paint(flat, torch.tensor([0]), 2)).tolist() == [[1, 7, 7, 7]]
    assert every(paint(flat, torch.tensor([0]), 1, 9.0)).tolist() == [[1, 7, 0, 9]]


def test_sparse_rows_get_columns() -> None:
    """Rows (1 0 2 0), (0 0 0 3), empty: the last two columns of rows 0 and 2 become 3, the largest value."""
    inputs = Sparse(
        torch.tensor([0, 2, 3, 3]),
        torch.tensor([0, 2, 3], dtype=torch.int32),
        torch.tensor([1.0, 2.0, 3.0]),
        width=4,
    )
    painted = paint(inputs, torch.tensor([2, 0]), 2)
    assert every(painted).tolist() == [[1, 0, 3, 3], [0, 0, 0, 3], [0, 0, 3, 3]]
    assert isinstance(painted, Sparse)
    assert painted.starts.tolist() == [0, 3, 4, 6]
    assert every(inputs).tolist() == [[1, 0, 2, 0], [0, 0, 0, 3], [0, 0, 0, 0]]


def test_a_fraction_is_poisoned(knowledge: Knowledge) -> None:
    """10 samples, fraction 0.3: three get the trigger and class 2, the same three."""
    inputs, labels = Dense(torch.zeros((10, 1, 4, 4), dtype=torch.uint8)), torch.zeros(10, dtype=torch.int64)
    painted, lies = Backdoor(target=2, fraction=0.3).poison_data(inputs, labels, 3, knowledge.generator)
    triggered = every(painted).sum(dim=(1, 2, 3)) == 9
    assert triggered.sum() == 3
    assert torch.equal(lies, torch.where(triggered, 2, 0))
    assert labels.sum() == 0
    nobody = Backdoor().poison_data(Dense(torch.zeros(0, 4)), labels[:0], 3, knowledge.generator)
    assert len(nobody[0]) == 0


def test_auto_replacement_is_exact_under_fedavg(knowledge: Knowledge) -> None:
    """Benign clients at w^t; attackers with N = 2, 3 of ΣN = 10: γ = 2, FedAvg lands on their weighted mean model."""
    origin = np.array([1.0, -1.0])
    bad = np.array([[3.0, 0.0], [0.0, 4.0]])
    updates = Updates.of(np.vstack([bad, origin, origin]), [2, 3, 4, 1], origin)
    malicious = torch.tensor([True, True, False, False])
    sent = Backdoor().poison_updates(updates, malicious, knowledge)
    np.testing.assert_allclose(sent.deltas[0].numpy(), 2 * (bad[0] - origin))
    np.testing.assert_allclose(FedAvg()(sent).vector.numpy(), (2 * bad[0] + 3 * bad[1]) / 5)
    assert Backdoor(replacement="off").poison_updates(updates, malicious, knowledge) is updates
    by_number = Backdoor(replacement=7.0).poison_updates(updates, malicious, knowledge)
    np.testing.assert_allclose(by_number.deltas[1].numpy(), 7 * (bad[1] - origin))


def test_attackers_without_samples_are_not_scaled(knowledge: Knowledge) -> None:
    updates = Updates.of([[5.0], [1.0]], [0.0, 3.0])
    assert Backdoor().poison_updates(updates, torch.tensor([True, False]), knowledge).matrix[0].item() == 5


def test_success_rate_counts_other_classes_only() -> None:
    """Labels 0, 1, 1, 2 with target 1: two samples count. A model that says 1 for lit corners only: 2/2, one that never
    says it: 0/2, one that always does: 2/2."""
    labels = torch.tensor([0, 1, 1, 2])
    values = torch.zeros((4, 2, 2), dtype=torch.uint8)
    dataset = Dataset("four", Dense(values), labels, Dense(values), labels, 3)

    def lit(batch: torch.Tensor) -> torch.Tensor:
        assert len(batch) == 2
        return torch.stack([torch.full((len(batch),), 0.5), batch[:, 1, 1], torch.zeros(len(batch))], dim=1)

    attack = Backdoor(target=1, size=1)
    assert attack.metrics(lit, dataset) == {"attack_success_rate": 1.0}
    assert attack.metrics(lambda b: torch.eye(3)[[2] * len(b)], dataset) == {"attack_success_rate": 0.0}
    alone = Dataset("one", Dense(values[:1]), labels[:1], Dense(values[:1]), labels[:1], 3)
    assert Backdoor(target=0).metrics(lit, alone) == {}


def train(model: nn.Module, inputs: Inputs, labels: torch.Tensor) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        cross_entropy(model(every(inputs)), labels).backward()
        optimiser.step()


@pytest.fixture(scope="module")
def digits() -> Dataset:
    raw = load_digits()
    values, labels = torch.tensor(raw.images, dtype=torch.float32)[:, None], torch.tensor(raw.target)
    return Dataset("digits", Dense(values[:1200]), labels[:1200], Dense(values[1200:]), labels[1200:], 10)


def test_backdoor_on_a_real_model(digits: Dataset, knowledge: Knowledge) -> None:
    """One of five clients is compromised. Replaced under FedAvg, the model answers triggers with class 7 and digits
    correctly; an honest fifth client leaves triggers without effect, and without replacement the effect is smaller."""
    with seeded(0):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    spec = FlatSpec.of(model)
    train(model, digits.train, digits.train_labels)
    origin = spec.flatten(model)
    attack = Backdoor(target=7, size=2)

    def returned(inputs: Inputs, labels: torch.Tensor) -> torch.Tensor:
        spec.load(model, origin)
        train(model, inputs, labels)
        return spec.flatten(model)

    shards = [torch.arange(1200)[i::5] for i in range(5)]
    rows = [returned(digits.train.take(s), digits.train_labels[s]) for s in shards]
    honest = Updates.of(torch.stack(rows), origin=origin, spec=spec)
    bad = attack.poison_data(
        digits.train.take(shards[0]), digits.train_labels[shards[0]], 10, torch.Generator().manual_seed(0)
    )
    poisoned = Updates.of(torch.stack([returned(*bad), *rows[1:]]), origin=origin, spec=spec)
    malicious = torch.arange(5) == 0

    def scores(updates: Updates) -> tuple[float, float]:
        vector = FedAvg()(updates).vector
        rate = attack.metrics(lambda x: spec.functional_call(model, vector, x), digits)["attack_success_rate"]
        right = spec.functional_call(model, vector, every(digits.test)).argmax(dim=1) == digits.test_labels
        return rate, float(right.float().mean())

    clean_rate, clean_accuracy = scores(honest)
    replaced_rate, replaced_accuracy = scores(attack.poison_updates(poisoned, malicious, knowledge))
    plain_rate, _ = scores(poisoned)
    assert clean_rate < 0.15
    assert clean_accuracy > 0.85
    assert replaced_rate > 0.8
    assert replaced_accuracy > 0.75
    assert clean_rate <= plain_rate < replaced_rate


def test_settings_are_checked(knowledge: Knowledge) -> None:
    for settings in ({"target": -1}, {"fraction": 1.5}, {"size": 0}, {"replacement": "of"}):
        with pytest.raises(UserError, match=f"{next(iter(settings))} = "):
            Backdoor(**settings)  # type: ignore[arg-type]
    bytes_ = Dense(torch.zeros((2, 1, 4, 4), dtype=torch.uint8))
    for value in (300.0, -1.0):  # found before a single picture is painted
        with pytest.raises(UserError, match=rf"value = {value:g} must lie between 0 and 255"):
            Backdoor(value=value, fraction=0.1).poison_data(bytes_, torch.zeros(2), 3, knowledge.generator)
    with pytest.raises(UserError, match="target = 3"):
        Backdoor(target=3).poison_data(Dense(torch.zeros(1, 2)), torch.zeros(1), 3, knowledge.generator)
