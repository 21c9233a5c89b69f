"""A weight for every layer of a client's model."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.layers import layers, layers_apart
from smartfl.aggregators.mistrust import HEARINGS
from smartfl.aggregators.restraint import restrained
from smartfl.aggregators.simplex_descent import Descent, SteadyAdam, descend
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Aggregate, Proxy, Server, Updates


def columns_of(model: nn.Module) -> list[list[slice]]:
    return layers(FlatSpec.of(model), model)


def test_a_layer_is_a_module_with_its_normalisation() -> None:
    """Convolution 18 + BatchNorm 4 | linear 8 + 2 | linear 4 + 2; the 4 running statistics are behind them."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 2)
    )
    assert columns_of(model) == [[slice(0, 22), slice(38, 42)], [slice(22, 32)], [slice(32, 38)]]


def test_normalisation_without_parameters_belongs_to_the_layer_before_it() -> None:
    """Linear 6 + 3 and the statistics 6 behind all parameters | linear 6 + 2."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    assert columns_of(model) == [[slice(0, 9), slice(17, 23)], [slice(9, 17)]]


def test_a_parametrised_layer_is_one_layer() -> None:
    """weight_norm keeps length and direction of a weight in a module inside: linear 3 + 3 + 6, linear 2 + 2 + 6."""
    norm = torch.nn.utils.parametrizations.weight_norm
    assert columns_of(nn.Sequential(norm(nn.Linear(2, 3)), norm(nn.Linear(3, 2)))) == [[slice(0, 12)], [slice(12, 22)]]
    assert columns_of(norm(nn.Linear(2, 3))) == [[slice(0, 12)]]


def test_normalisation_in_front_is_a_layer_of_its_own() -> None:
    assert columns_of(nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))) == [[slice(0, 6)], [slice(6, 14)]]


def test_a_plain_vector_and_a_single_module_are_one_layer() -> None:
    assert columns_of(nn.Linear(3, 2)) == [[slice(0, 8)]]
    assert layers(FlatSpec.plain(7), nn.Identity()) == [[slice(0, 7)]]


class Cohort:
    """Three clients of a net with three layers, one with statistics, in float64."""

    def __init__(self, batchnorm: BatchNormMode = "mixed") -> None:
        generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(
                nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)
            ).double()
        spec = FlatSpec.of(self.model)
        rows = spec.flatten(self.model) + torch.randn(3, spec.size, generator=generator, dtype=torch.float64)
        for where in spec.variances:
            rows[:, where] = rows[:, where].abs() + 0.2
        self.updates = Updates.of(rows, spec=spec)
        inputs = torch.randn(16, 4, generator=generator, dtype=torch.float64)
        self.labels = torch.randint(0, 2, (16,), generator=generator)
        self.hull = Hull(self.updates, self.model, inputs, batchnorm)
        self.p = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3], [0.0, 0.9, 0.1]], dtype=torch.float64)

    def loss(self, logits: Tensor, index: Tensor) -> Tensor:
        return F.cross_entropy(logits, self.labels[index])

    def value(self, p: Tensor) -> float:
        return float(F.cross_entropy(self.hull.logits(p), self.labels))


def test_every_layer_is_mixed_with_its_own_weights() -> None:
    cohort = Cohort()
    spec, rows = cohort.updates.spec, cohort.updates.matrix
    mixed = spec.unflatten(cohort.hull.mix(cohort.p))
    named = [spec.unflatten(row) for row in rows]
    for name, layer in (("0.weight", 0), ("1.bias", 0), ("1.running_var", 0), ("3.bias", 1), ("5.weight", 2)):
        expected = sum(cohort.p[layer, i] * named[i][name] for i in range(3))
        torch.testing.assert_close(mixed[name], expected)


@pytest.mark.parametrize("batchnorm", ["mixed", "moments", "reestimate"])
def test_the_gradient_of_every_weight_against_finite_differences(batchnorm: BatchNormMode) -> None:
    cohort = Cohort(batchnorm)
    _, g = cohort.hull.gradient(cohort.p, torch.arange(16), cohort.loss)
    assert g.shape == (3, 3)
    for layer in range(3):
        for i in range(3):
            h = torch.zeros(3, 3, dtype=torch.float64)
            h[layer, i] = 1e-6
            slope = (cohort.value(cohort.p + h) - cohort.value(cohort.p - h)) / 2e-6
            assert float(g[layer, i]) == pytest.approx(slope, abs=1e-6)


def test_equal_weights_in_all_layers_are_one_weight() -> None:
    """The same model, and the layers' gradients add up to that of the one weight."""
    cohort = Cohort()
    hull, p = cohort.hull, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    torch.testing.assert_close(hull.mix(hull.by_layer(p)), hull.mix(p))
    g = hull.gradient(p, torch.arange(16), cohort.loss)[1]
    torch.testing.assert_close(hull.gradient(hull.by_layer(p), torch.arange(16), cohort.loss)[1].sum(dim=0), g)
    torch.testing.assert_close(hull.shares(hull.by_layer(p)), p)


def test_a_share_is_counted_in_parameters() -> None:
    """Layers of 15 + 6, 12 and 8 parameters; statistics are none."""
    expected = (21 * 0.6 + 12 * 0.1 + 8 * 0.9) / 41
    p = torch.tensor([[0.4, 0.6], [0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)
    assert float(Cohort().hull.shares(p)[1]) == pytest.approx(expected)


def test_rows_are_searched_one_by_one() -> None:
    """Two rows in one search end where two searches end."""
    slopes = torch.tensor([[0.0, 1.0, 3.0], [2.0, -1.0, 0.5]], dtype=torch.float64)
    start = torch.full((3,), 1 / 3, dtype=torch.float64)

    def search(slope: Tensor) -> Tensor:
        batches = [[torch.arange(1)]] * 20
        there = start.expand_as(slope)
        return descend(there, lambda p, _: (0.0, slope + p), batches, SteadyAdam(0.05), centre=True).p

    torch.testing.assert_close(search(slopes), torch.stack([search(slope) for slope in slopes]))


def test_the_fit_of_layers_is_weighed_by_their_mean() -> None:
    """df = ½ in one layer (see test_restraint.py) and 0 in the other, which has not moved: ¼, a penalty of 0.0125."""
    rest = torch.full((4,), 0.25, dtype=torch.float64)
    p = torch.stack([torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64), rest])
    for slope, t in ((0.024, 1.0), (0.026, 0.0)):  # on the whole way p gains half of it
        _, way = restrained(p, rest, lambda q, s=slope: s * float(q[0, 2:].sum()), math.inf, 10, 0.5)  # type: ignore[misc]
        assert way == t


class Halves:
    """Client 0 looks at the right feature and calls it by the wrong name, client 1 the other way round."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False))
        rows = torch.tensor([[1.0, 0.0, -1.0, 1.0], [0.0, 1.0, 1.0, -1.0]])
        self.updates = Updates.of(rows, origin=torch.zeros(4), spec=FlatSpec.of(self.model))
        inputs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(16, 1)
        self.proxy = Proxy(inputs, (inputs[:, 0] < 0).long(), 2)

    def result(self, rule: SmartFL, t: int = 1) -> tuple[Aggregate, float]:
        """What comes out in round t, and how often it is right."""
        server = Server(t, self.model, self.proxy, torch.Generator().manual_seed(0))
        found = rule(self.updates, server)
        first, second = found.vector.split(2)
        said = ((self.proxy.inputs @ first)[:, None] * second).argmax(dim=1)
        return found, float(said.eq(self.proxy.labels).double().mean())


def test_each_layer_comes_from_the_client_that_has_it() -> None:
    """One weight a client leaves the mix at a guess: p_0 > ½ has the feature with the wrong name, p_0 < ½ the other."""
    found, right = Halves().result(SmartFL(server_epochs=60))
    assert right == 1.0
    assert found.coefficients is not None
    assert float(found.coefficients.sum()) == pytest.approx(1)
    assert Halves().result(SmartFL(server_epochs=60, layered=False))[1] <= 0.5


def test_layers_have_weights_of_their_own_for_as_many_rounds_as_the_samples_bear() -> None:
    """(L − 1) t ≤ 2.5 N: ten layers on 128 samples for 35 rounds, a single layer for ever."""
    assert [layers_apart(10, t, 128) for t in (1, 35, 36, 200)] == [True, True, False, False]
    assert [layers_apart(2, t, 128) for t in (320, 321)] == [True, False]
    assert layers_apart(10, 284, 1024)
    assert layers_apart(1, 10**6, 1)


def test_in_later_rounds_a_client_has_one_weight_bit_for_bit() -> None:
    """Two layers and 64 samples: until round 160."""
    halves = Halves()
    assert halves.result(SmartFL(server_epochs=60), t=160)[1] == 1.0
    late, right = halves.result(SmartFL(server_epochs=60), t=161)
    one, _ = halves.result(SmartFL(server_epochs=60, layered=False), t=161)
    assert right <= 0.5
    assert torch.equal(late.vector, one.vector)


def test_clients_of_many_classes_keep_their_layers() -> None:
    """Their median breadth in the first four rounds decides, 0.2 or more; in these, two others were heard."""
    for breadth, apart in ((0.2, True), (0.19, False)):
        rule = SmartFL(server_epochs=60)
        for _ in range(HEARINGS):
            rule._past.learn([7, 8], torch.zeros(2), torch.full((2,), breadth, dtype=torch.float64))
        assert (Halves().result(rule, t=161)[1] == 1.0) is apart


def test_what_a_step_towards_a_client_costs_is_its_cost_in_all_layers() -> None:
    """The directional derivative from w(P) to the client's whole model, in units of the price."""
    cohort, rule = Cohort(), SmartFL()
    proxy = Proxy(cohort.hull.inputs, cohort.labels, 2)
    loss = rule._loss(cohort.hull, proxy)
    loss.latest = cohort.hull.logits(cohort.p).clone()
    loss.refit()
    _, g = cohort.hull.gradient(cohort.p, torch.arange(16), loss)
    to_client = torch.eye(3, dtype=torch.float64)
    expected = [float((g * (to_client[i] - cohort.p)).sum()) / loss.price for i in range(3)]
    assert rule._cost_of_steps(cohort.hull, cohort.p, proxy).tolist() == pytest.approx(expected)


def test_of_one_layer_it_is_the_same_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(64, 5, generator=generator)
    proxy, model = Proxy(inputs, inputs[:, :3].argmax(dim=1), 3), nn.Linear(5, 3)
    spec = FlatSpec.of(model)
    updates = Updates.of(torch.randn(6, spec.size, generator=generator), origin=torch.zeros(spec.size), spec=spec)
    one, many = (
        SmartFL(layered=layered)(updates, Server(model=model, proxy=proxy, generator=torch.Generator().manual_seed(0)))
        for layered in (False, True)
    )
    assert torch.equal(one.vector, many.vector)
    assert one.coefficients is not None
    assert many.coefficients is not None
    assert torch.equal(one.coefficients, many.coefficients)


def test_the_paper_has_one_weight_a_client() -> None:
    assert SmartFL().layered is True
    assert SmartFL(variant="literal").layered is None
    with pytest.raises(UserError, match="layered = true needs the calibrated variant"):
        SmartFL(variant="literal", layered=True)


def test_what_is_held_against_a_client_is_charged_in_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of client i is higher by ½ λ e_i in both layers; at equal weights the value by the mean of both."""
    halves = Halves()
    seen: dict[str, tuple[float, Tensor]] = {}

    def spy(start: Tensor, gradient: Callable[[Tensor, Tensor], tuple[float, Tensor]], **_: object) -> Descent:
        seen["start"] = gradient(start, torch.arange(64))
        return Descent(start, 0)

    monkeypatch.setattr("smartfl.aggregators.smartfl.descend", spy)
    found = {}
    for mistrust in (0.0, 0.5):
        rule = SmartFL(restraint=0.0, init="uniform", mistrust=mistrust)
        rule._past.observe([0, 1], torch.tensor([0.0, 5.0], dtype=torch.float64))
        held = rule._past.of([0, 1])
        halves.result(rule)
        found[mistrust] = seen["start"]
    hull = Hull(halves.updates, halves.model, halves.proxy.inputs)
    price = SmartFL()._loss(hull, halves.proxy).price
    charge = 0.5 * price * held
    torch.testing.assert_close(found[0.5][1] - found[0.0][1], charge.expand(2, -1))
    assert found[0.5][0] - found[0.0][0] == pytest.approx(2 * float(charge.mean()))


def test_shares_are_what_is_said_about_the_weights() -> None:
    """Client 0 has the first of two layers of two parameters each, client 1 the second."""
    aggregate, _ = Halves().result(SmartFL(server_epochs=200, restraint=0.0))
    assert aggregate.coefficients is not None
    assert aggregate.coefficients.tolist() == pytest.approx([0.5, 0.5], abs=0.1)
    p = aggregate.coefficients
    assert aggregate.info["effective_clients"] == pytest.approx(float(1 / p.square().sum()))
    assert aggregate.info["moved"] == pytest.approx(float((p - 0.5).abs().sum()))


def test_permuting_clients_permutes_their_weights_in_every_layer() -> None:
    cohort, order = Cohort(), [2, 0, 1]
    proxy = Proxy(cohort.hull.inputs, cohort.labels, 2)
    rows, spec = cohort.updates.matrix, cohort.updates.spec

    def found(matrix: Tensor) -> Aggregate:
        server = Server(model=cohort.model, proxy=proxy, generator=torch.Generator().manual_seed(0))
        origin = torch.zeros(spec.size, dtype=torch.float64)
        return SmartFL(server_epochs=6)(
            Updates.of(matrix, origin=spec.clamp_variances_(origin[None])[0], spec=spec), server
        )

    one, two = found(rows), found(rows[order])
    assert one.coefficients is not None
    assert two.coefficients is not None
    assert len({round(float(c), 6) for c in one.coefficients}) == 3  # otherwise there is nothing to permute
    torch.testing.assert_close(two.coefficients, one.coefficients[order])
    torch.testing.assert_close(two.vector, one.vector)


def test_layers_of_rows_stored_in_half_precision() -> None:
    """The same search as on rows that were rounded and stored in float32."""
    halves = Halves()
    noise = 0.1 * torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    stored = (halves.updates.matrix + noise).to(torch.bfloat16)
    vectors = []
    for matrix in (stored, stored.float()):
        halves.updates = halves.updates.with_matrix(matrix)
        vectors.append(halves.result(SmartFL(server_epochs=60))[0].vector)
    assert vectors[0].dtype == torch.float32
    torch.testing.assert_close(vectors[0], vectors[1])
