from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.median import Median
from smartfl.attacks.base import Knowledge
from smartfl.attacks.fang import FangMedian, FangTrimmedMean
from smartfl.errors import UserError
from smartfl.types import Updates

BENIGN = [[0.1, -0.3, -0.2, 0.5], [0.2, 0.1, -0.4, -0.1], [0.4, 0.5, -0.1, -0.9]]
MALICIOUS = torch.tensor([False, False, False, True, True])


def with_two_attackers(origin: list[float] | None = None) -> Updates:
    rows = torch.tensor([*BENIGN, [0.0] * 4, [0.0] * 4])
    start = torch.zeros(4) if origin is None else torch.tensor(origin)
    return Updates.of(rows + start, origin=start)


@pytest.mark.parametrize("seed", range(20))
def test_full_knowledge_intervals_and_median(seed: int) -> None:
    """[X] s = (+,+,−,−): intervals [.05,.1], [−.6,−.3], [−.1,−.05], [.5,1]; the median becomes (.1,−.3,−.1,.5)."""
    updates = with_two_attackers()
    np.testing.assert_allclose(Median()(Updates.of(BENIGN)).vector.numpy(), [0.2, 0.1, -0.2, -0.1], atol=1e-7)
    sent = FangMedian().poison_updates(updates, MALICIOUS, Knowledge(torch.Generator().manual_seed(seed)))
    rows = sent.matrix[3:].numpy()
    assert (rows >= np.array([0.05, -0.6, -0.1, 0.5]) - 1e-7).all()
    assert (rows <= np.array([0.1, -0.3, -0.05, 1.0]) + 1e-7).all()
    assert (rows[0] != rows[1]).all()
    np.testing.assert_allclose(Median()(sent).vector.numpy(), [0.1, -0.3, -0.1, 0.5], atol=1e-7)


def test_draws_fill_the_interval_uniformly(knowledge: Knowledge) -> None:
    """1 000 attackers on coordinate 3, U[.5, 1]: mean .75 ± 5·.0046, all but 5 % of the width reached."""
    rows = torch.tensor(BENIGN + [[0.0] * 4] * 1000)
    malicious = torch.arange(1003) >= 3
    values = FangMedian().poison_updates(Updates.of(rows), malicious, knowledge).matrix[3:, 3]
    assert abs(values.mean() - 0.75) < 0.023
    assert values.min() < 0.525
    assert values.max() > 0.975


def test_partial_knowledge_interval(knowledge: Knowledge) -> None:
    """[X] the three as attackers: coordinate 0 has μ = .2333, σ = .1247 → U[−.2656, −.1408]; all by NumPy."""
    own = np.array(BENIGN)
    mean, std = own.mean(axis=0), own.std(axis=0)
    rows = torch.tensor([*BENIGN, [9.0] * 4])
    attack = FangMedian(knowledge="partial")
    sent = (
        attack.poison_updates(Updates.of(rows), torch.tensor([True, True, True, False]), knowledge).matrix[:3].numpy()
    )
    assert (sent[:, 0] >= -0.2656 - 1e-4).all()
    assert (sent[:, 0] <= -0.1408 + 1e-4).all()
    deviations = (mean - sent) * np.sign(mean) / std
    assert (deviations >= 3 - 1e-4).all()
    assert (deviations <= 4 + 1e-4).all()


def test_model_space_scales_the_weights(knowledge: Knowledge) -> None:
    """w^t = (10, −10): benign w in (10.1, 10.2, 10.4), s = + and min > 0 → U[5.05, 10.1]; second coordinate
    Δ = (−.2, −.4, −.1), s = −, max w = −10.1 ≤ 0 → U[−10.1, −5.05]."""
    benign = torch.tensor([[10.1, -10.2], [10.2, -10.4], [10.4, -10.1]])
    rows = torch.cat([benign, torch.zeros(200, 2)])
    updates = Updates.of(rows, origin=[10.0, -10.0])
    malicious = torch.arange(203) >= 3
    sent = FangMedian(space="model").poison_updates(updates, malicious, knowledge).matrix[3:].numpy()
    assert (sent >= np.array([5.05, -10.1]) - 1e-5).all()
    assert (sent <= np.array([10.1, -5.05]) + 1e-5).all()
    assert sent[:, 0].min() < 5.4
    assert sent[:, 1].max() > -5.4


def test_factor_b_and_coordinates_without_direction(knowledge: Knowledge) -> None:
    """b = 10 with min −.3: within [−3, −.3] and beyond b = 2's reach; a coordinate whose mean is 0 gets the mean."""
    rows = torch.tensor([[-0.3, 1.0], [0.5, -1.0]] + [[0.0, 0.0]] * 100)
    malicious = torch.arange(102) >= 2
    sent = FangMedian(b=10.0).poison_updates(Updates.of(rows), malicious, knowledge).matrix[2:]
    assert sent[:, 0].min() >= -3 - 1e-6
    assert sent[:, 0].max() <= -0.3 + 1e-6
    assert sent[:, 0].min() < -2
    assert (sent[:, 1] == 0).all()


def test_without_benign_clients_full_is_partial_and_one_alone_is_honest(knowledge: Knowledge) -> None:
    updates = Updates.of(BENIGN)
    everyone = torch.ones(3, dtype=torch.bool)
    seeds = [Knowledge(torch.Generator().manual_seed(5)) for _ in range(2)]
    full = FangMedian().poison_updates(updates, everyone, seeds[0]).matrix
    assert torch.equal(full, FangMedian("partial").poison_updates(updates, everyone, seeds[1]).matrix)
    one = Updates.of(BENIGN[:1])
    sent = FangMedian().poison_updates(one, torch.tensor([True]), knowledge)
    np.testing.assert_allclose(sent.matrix.numpy(), BENIGN[:1], atol=1e-7)


def test_trimmed_mean_attack_is_the_same_arithmetic() -> None:
    pair = [Knowledge(torch.Generator().manual_seed(5)) for _ in range(2)]
    sent = [
        attack.poison_updates(with_two_attackers([1.0, 2.0, 3.0, 4.0]), MALICIOUS, knows).matrix
        for attack, knows in zip([FangMedian(), FangTrimmedMean()], pair, strict=True)
    ]
    assert torch.equal(*sent)


@pytest.mark.parametrize("b", [1.0, 0.5, float("inf"), float("nan")])
def test_b_must_exceed_one(b: float) -> None:
    with pytest.raises(UserError, match="b = "):
        FangMedian(b=b)
