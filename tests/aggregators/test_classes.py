"""A weight for every class of a model that is linear in its parameters."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.layers import classes
from smartfl.flat import FlatSpec
from smartfl.models.logistic import Logistic
from smartfl.types import Aggregate, Proxy, Server, Updates


def test_a_class_has_a_row_of_every_tensor() -> None:
    """Weights 3 × 2, then three biases."""
    spec = FlatSpec.of(nn.Linear(2, 3))
    assert classes(spec, 3) == [
        [slice(0, 2), slice(6, 7)],
        [slice(2, 4), slice(7, 8)],
        [slice(4, 6), slice(8, 9)],
    ]
    assert classes(spec, 2) == []
    assert classes(FlatSpec.of(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))), 3) == []


class Sum(nn.Module):
    """Two modules, and still linear in its parameters, class by class."""

    linear_in_parameters = True

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.one(x) + self.two(x)
        return total


class Columns(nn.Module):
    """As many features as classes, and the classes are the columns of the weight, not its rows."""

    linear_in_parameters = True

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Cohort:
    """Four clients of a linear model of three classes."""

    def __init__(self, model: nn.Module, features: int = 5) -> None:
        generator, dtype = torch.Generator().manual_seed(1), next(model.parameters()).dtype
        self.model, spec = model, FlatSpec.of(model)
        rows = torch.randn(4, spec.size, generator=generator, dtype=dtype)
        self.updates = Updates.of(rows, origin=torch.zeros(spec.size, dtype=dtype), spec=spec)
        inputs = torch.randn(64, features, generator=generator, dtype=dtype)
        self.proxy = Proxy(inputs, inputs[:, :3].argmax(dim=1), 3)
        self.hull = Hull(self.updates, model, inputs)
        self.p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.0], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)

    def logits(self, vector: Tensor) -> Tensor:
        return self.updates.spec.functional_call(self.model, vector, self.proxy.inputs)

    def result(self, rule: SmartFL) -> Aggregate:
        server = Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(0))
        return rule(self.updates, server)


@pytest.mark.parametrize("model", [Logistic(5, 3), Sum()])
def test_logits_and_model_of_weights_by_class_are_the_same_thing(model: nn.Module) -> None:
    cohort = Cohort(model)
    torch.testing.assert_close(cohort.logits(cohort.hull.mix(cohort.p)), cohort.hull.logits(cohort.p))


def test_every_class_is_mixed_with_its_own_weights() -> None:
    cohort = Cohort(Logistic(5, 3))
    spec = cohort.updates.spec
    mixed = spec.unflatten(cohort.hull.mix(cohort.p))
    weights = torch.stack([spec.unflatten(row)["linear.weight"] for row in cohort.updates.matrix])
    for c in range(3):
        torch.testing.assert_close(mixed["linear.weight"][c], cohort.p[c].float() @ weights[:, c])


def test_the_gradient_of_every_weight_against_finite_differences() -> None:
    cohort = Cohort(Logistic(5, 3).double())
    hull, labels = cohort.hull, cohort.proxy.labels
    assert labels is not None

    def value(p: Tensor) -> float:
        return float(F.cross_entropy(hull.logits(p), labels))

    _, g = hull.gradient(cohort.p, torch.arange(64), lambda z, index: F.cross_entropy(z, labels[index]))
    for c in range(3):
        for i in range(4):
            h = torch.zeros(3, 4, dtype=torch.float64)
            h[c, i] = 1e-6
            assert float(g[c, i]) == pytest.approx((value(cohort.p + h) - value(cohort.p - h)) / 2e-6, abs=1e-6)


def test_whether_classes_can_be_told_apart_is_tried_out() -> None:
    """Rows of a tensor with as many rows as classes need not be classes; nor is there a class in a net's layers."""
    p = torch.full((4,), 0.25, dtype=torch.float64)
    found = Cohort(Logistic(5, 3)).hull.by_class(p)
    assert found is not None
    assert found.shape == (3, 4)
    assert Cohort(Columns(), features=3).hull.by_class(p) is None
    assert Cohort(nn.Linear(5, 3)).hull.by_class(p) is None
    result = Cohort(Columns(), features=3).result(SmartFL())
    assert "classes_drawn_back" not in result.info


class Specialists:
    """Client c knows one class of three and has the other two the wrong way round: none of them, and no mix, is good.

    The truth is W = 4·I; client c has row c of it, and minus the other two.
    """

    def __init__(self) -> None:
        self.model = Logistic(3, 3)
        truth = 4 * torch.eye(3)
        rows = [torch.where(torch.eye(3)[c].bool()[:, None], truth, -truth).flatten() for c in range(3)]
        matrix = torch.cat([torch.stack(rows), torch.zeros(3, 3)], dim=1)
        self.updates = Updates.of(matrix, origin=torch.zeros(12), spec=FlatSpec.of(self.model))
        inputs = torch.randn(128, 3, generator=torch.Generator().manual_seed(0))
        self.proxy = Proxy(inputs, inputs.argmax(dim=1), 3)

    def result(self, rule: SmartFL) -> tuple[Aggregate, float]:
        """What comes out, and how often it is right."""
        server = Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(0))
        found = rule(self.updates, server)
        said = (self.proxy.inputs @ found.vector[:9].view(3, 3).T).argmax(dim=1)
        return found, float(said.eq(self.proxy.labels).double().mean())


def test_each_class_comes_from_the_client_that_knows_it() -> None:
    found, right = Specialists().result(SmartFL(server_epochs=60))
    assert right > 0.95
    assert found.info["classes_drawn_back"] == 0
    assert found.coefficients is not None
    assert found.coefficients.tolist() == pytest.approx([1 / 3] * 3, abs=0.1)  # shares of the parameters
    assert Specialists().result(SmartFL(server_epochs=60, layered=False))[1] < 0.6


def test_where_classes_gain_no_more_than_chance_there_is_one_weight_a_client() -> None:
    """Clients that are alike but for noise: the very model that one weight a client gives."""
    scene = Specialists()
    noise = 0.1 * torch.randn(8, 12, generator=torch.Generator().manual_seed(3))
    scene.updates = Updates.of(
        torch.cat([4 * torch.eye(3).flatten(), torch.zeros(3)]) + noise,
        origin=torch.zeros(12),
        spec=scene.updates.spec,
    )
    found, _ = scene.result(SmartFL())
    one, _ = scene.result(SmartFL(layered=False))
    assert found.info["classes_drawn_back"] == 1
    assert torch.equal(found.vector, one.vector)
    assert "classes_drawn_back" not in one.info


def test_the_df_of_classes_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The restraint's mean over the rows, times their number: C = 3 times as strong as for one weight a client."""
    strengths: list[float] = []

    def spy(p: Tensor, rest: Tensor, fit: object, before: float, samples: int, strength: float) -> tuple[Tensor, float]:
        strengths.append(strength)
        return p, 0.0

    monkeypatch.setattr("smartfl.aggregators.smartfl.restrained", spy)
    Specialists().result(SmartFL(restraint=0.25))
    assert strengths == [0.25, 0.75]
