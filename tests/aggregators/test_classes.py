"""A weight for every class of a model that is linear in its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.layers import classes
from smartfl.aggregators.shortening import within_reach
from smartfl.aggregators.simplex_descent import Descent
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


def test_clients_that_are_alike_do_not_hide_that_rows_are_no_classes() -> None:
    cohort = Cohort(Columns(), features=3)
    rows = cohort.updates.matrix[:1].repeat(4, 1)
    hull = Hull(cohort.updates.with_matrix(rows), cohort.model, cohort.proxy.inputs)
    assert hull.by_class(torch.full((4,), 0.25, dtype=torch.float64)) is None


def test_with_one_weight_a_client_the_model_is_the_sum_over_its_coefficients() -> None:
    cohort = Cohort(Sum())
    result = cohort.result(SmartFL(layered=False))
    assert result.coefficients is not None
    shorter, _ = within_reach(cohort.updates, SmartFL.reach)
    torch.testing.assert_close(result.vector, shorter.mix(result.coefficients))


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
    assert float(found.vector[:9].view(3, 3).diag().min()) > 2  # of 4; an average has −4/3
    assert Specialists().result(SmartFL(server_epochs=60, layered=False))[1] < 0.6


def test_steps_and_events_of_both_searches_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def spy(start: Tensor, **_: object) -> Descent:
        return Descent(start, 3, ("one weight",)) if start.ndim == 1 else Descent(start, 4, ("by class",))

    monkeypatch.setattr("smartfl.aggregators.smartfl.descend", spy)
    found, _ = Specialists().result(SmartFL())
    assert found.events == ("one weight", "by class")
    assert found.info["steps"] == 7


def test_without_restraint_what_the_classes_found_is_followed() -> None:
    found, right = Specialists().result(SmartFL(server_epochs=60, restraint=0.0))
    assert "classes_drawn_back" not in found.info
    assert right > 0.95


def test_what_is_held_against_a_client_is_charged_in_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of client i is higher by ½ λ e_i in all three classes."""
    scene = Specialists()
    seen: list[Tensor] = []

    def spy(start: Tensor, gradient: Callable[[Tensor, Tensor], tuple[float, Tensor]], **_: object) -> Descent:
        seen.append(gradient(start, torch.arange(128))[1])
        return Descent(start, 0)

    monkeypatch.setattr("smartfl.aggregators.smartfl.descend", spy)
    for mistrust in (0.0, 0.5):
        rule = SmartFL(restraint=0.0, init="uniform", mistrust=mistrust)
        rule._past.observe([0, 1, 2], torch.tensor([0.0, 5.0, 1.0], dtype=torch.float64))
        held = rule._past.of([0, 1, 2])
        scene.result(rule)
    by_class = seen[1], seen[3]
    price = SmartFL()._loss(Hull(scene.updates, scene.model, scene.proxy.inputs), scene.proxy).price
    assert held.max() > 0.5
    torch.testing.assert_close(by_class[1] - by_class[0], (0.5 * price * held).expand(3, -1))


def test_what_a_step_towards_a_client_costs_is_its_cost_in_all_classes() -> None:
    """The directional derivative from w(P) to the client's whole model, in units of the price."""
    cohort, rule = Cohort(Logistic(5, 3)), SmartFL()
    loss = rule._loss(cohort.hull, cohort.proxy)
    loss.latest = cohort.hull.logits(cohort.p).clone()
    loss.refit()
    _, g = cohort.hull.gradient(cohort.p, torch.arange(64), loss)
    to_client = torch.eye(4, dtype=torch.float64)
    expected = [float((g * (to_client[i] - cohort.p)).sum()) / loss.price for i in range(4)]
    assert rule._cost_of_steps(cohort.hull, cohort.p, cohort.proxy).tolist() == pytest.approx(expected)


def test_what_the_round_remembers_is_where_the_classes_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(self: SmartFL, hull: Hull, p: Tensor, *_: object) -> dict[str, float]:
        seen.append(p)
        return {}

    monkeypatch.setattr(SmartFL, "_remember", spy)
    Specialists().result(SmartFL(server_epochs=60))
    assert seen[0].shape == (3, 3)
    assert seen[0].diag().min() > 0.5  # each class is mostly its own client's


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


def test_classes_are_restrained_as_one_weight_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the loss of w^t = 0, ln 3; their df are added up: the mean over the rows, times the number of classes."""
    calls: list[tuple[float, float]] = []

    def spy(p: Tensor, rest: Tensor, fit: object, before: float, samples: int, strength: float) -> tuple[Tensor, float]:
        calls.append((before, strength))
        return p, 0.0

    monkeypatch.setattr("smartfl.aggregators.smartfl.restrained", spy)
    Specialists().result(SmartFL(restraint=0.25))
    assert calls == [pytest.approx((math.log(3), 0.25)), pytest.approx((math.log(3), 0.75))]
