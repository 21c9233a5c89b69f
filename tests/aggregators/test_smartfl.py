"""ALGORITHMS.md 1.6 and 1.8: the acceptance tests of SmartFL and its edge cases."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.simplex_descent import SteadyAdam, descend
from smartfl.aggregators.smartfl import SmartFL, without_dust
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.logistic import Logistic
from smartfl.optimizers import FlatAdam, FlatSGD
from smartfl.types import Proxy, Server, Updates

VARIANTS = ["literal", "centred", "calibrated"]
every_variant = pytest.mark.parametrize("variant", VARIANTS)
both_paths = pytest.mark.parametrize("linear", [True, False])


class Problem:
    """Five features, three classes, separable: ``good`` solves it, its negative gets everything wrong."""

    def __init__(self, linear: bool = True, samples: int = 64) -> None:
        generator = torch.Generator().manual_seed(0)
        self.model = Logistic(5, 3)
        self.model.linear_in_parameters = linear
        self.spec = FlatSpec.of(self.model)
        truth = torch.randn(3, 5, generator=generator)
        inputs = torch.randn(samples, 5, generator=generator)
        self.good = torch.cat([truth.reshape(-1), torch.zeros(3)])
        self.proxy = Proxy(inputs, (inputs @ truth.T).argmax(dim=1), 3)
        self.noise = torch.randn(8, self.spec.size, generator=generator)

    def updates(self, rows: torch.Tensor, *arguments: object, **more: object) -> Updates:
        return Updates.of(rows, *arguments, spec=self.spec, **more)

    def server(self) -> Server:
        return Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(5))

    def around(self, *signs: float) -> torch.Tensor:
        """One row near sign·good for each sign."""
        return torch.stack([s * self.good + 0.2 * e for s, e in zip(signs, self.noise, strict=False)])


@pytest.mark.parametrize(("target", "optimum"), [(1.0, 0.25), (-1.0, 0.0), (7.0, 1.0)])
def test_two_clients_and_a_quadratic_loss_reach_the_closed_form(target, optimum):
    """1.8.1: w = (4, 0), model w·x at x = 1, loss (w(p) − t)²: p₁ = t/4 clipped to [0, 1]."""
    model = nn.Linear(1, 1, bias=False)
    updates = Updates.of([[4.0], [0.0]], spec=FlatSpec.of(model))
    hull = Hull(updates, model, torch.ones(1, 1))
    batches = [[torch.zeros(1, dtype=torch.int64)] * 300]
    found = descend(
        updates.weights,
        lambda p, index: hull.gradient(p, index, lambda output, where: (output - target).square().mean()),
        batches,
        FlatSGD(0.01),
        centre=True,
    )
    assert found.p.tolist() == pytest.approx([optimum, 1 - optimum], abs=1e-4)
    assert hull.mix(found.p).item() == pytest.approx(4 * optimum, abs=1e-3)


@pytest.mark.parametrize("variant", ["literal", "centred"])
@both_paths
def test_one_honest_client_among_sign_flipped_copies_gets_all_weight(variant, linear):
    """1.8.2: within 200 steps; 64 samples in batches of 32 are 2 steps an epoch.

    Six equal attackers are the median themselves: centred, only the honest client steps, which takes 1.5 times as long.
    """
    problem = Problem(linear)
    updates = problem.updates(torch.stack([-problem.good] * 3 + [problem.good] + [-problem.good] * 3))
    epochs = {"literal": 100, "centred": 150}[variant]
    result = SmartFL(variant, server_epochs=epochs)(updates, problem.server())
    assert result.info["steps"] == 2 * epochs
    assert float(result.coefficients[3]) > 0.99


def test_a_loss_without_scale_stops_once_the_mix_is_right():
    """Calibrated: w(p) = (2p − 1)·good for honest weight p, and every p > ½ has the same loss; the mix is right."""
    problem = Problem()
    rows = torch.stack([-problem.good] * 6 + [problem.good])
    result = SmartFL(server_epochs=100)(problem.updates(rows), problem.server())
    assert float(result.coefficients[6]) > 0.6
    predicted = problem.spec.functional_call(problem.model, result.vector, problem.proxy.inputs).argmax(dim=1)
    assert torch.equal(predicted, problem.proxy.labels)


@every_variant
def test_weights_are_on_the_simplex_and_the_model_in_the_box(world, variant):
    """1.8.3, with BatchNorm statistics as part of the model."""
    w = world(batchnorm=True)
    low, high = w.updates.matrix.min(dim=0).values, w.updates.matrix.max(dim=0).values
    for layered in (None, False):
        rule = SmartFL(variant, server_epochs=4, lr=0.05, batchnorm="mixed", layered=layered)
        result = rule(w.updates, w.server())
        p = result.coefficients
        assert p.dtype == torch.float64
        assert float(p.min()) >= 0
        assert abs(float(p.sum()) - 1) <= 1e-9
        assert bool(((result.vector >= low - 1e-6) & (result.vector <= high + 1e-6)).all())
        if not rule.layered:
            torch.testing.assert_close(result.vector, w.updates.mix(p))


@every_variant
def test_no_server_epochs_are_exactly_fedavg(world, variant):
    """1.8.4"""
    w = world(batchnorm=True)
    result, fedavg = SmartFL(variant, server_epochs=0)(w.updates, w.server()), FedAvg()(w.updates)
    assert torch.equal(result.vector, fedavg.vector)
    assert torch.equal(result.coefficients, fedavg.coefficients)


@every_variant
@both_paths
def test_permuting_clients_permutes_their_weights(variant, linear):
    """1.8.5: ids follow their rows, so the sorted matrix has another order."""
    problem = Problem(linear)
    rows, order = problem.around(1, -1, 1, 0.5), [2, 0, 3, 1]
    rule = partial(SmartFL, variant, server_epochs=6)
    one = rule()(problem.updates(rows, [1, 2, 3, 4]), problem.server())
    two = rule()(problem.updates(rows[order], [[1, 2, 3, 4][i] for i in order]), problem.server())
    torch.testing.assert_close(two.coefficients, one.coefficients[order], rtol=0, atol=1e-5)
    torch.testing.assert_close(two.vector, one.vector, rtol=0, atol=1e-5)


@every_variant
def test_a_nan_client_is_as_good_as_absent(world, variant):
    """1.8.5: bit for bit, with weight 0 and a reason."""
    w = world(batchnorm=True)
    row = w.updates.matrix[0].clone()
    row[3] = torch.nan
    rule = partial(SmartFL, variant, server_epochs=3)
    with_it, without = rule()(w.with_row(9, row), w.server()), rule()(w.updates, w.server())
    assert torch.equal(with_it.vector, without.vector)
    assert torch.equal(with_it.coefficients[:-1], without.coefficients)
    assert with_it.coefficients[-1] == 0
    assert [d.id for d in with_it.dropped] == [9]


@every_variant
def test_same_inputs_same_result(world, variant):
    w = world(batchnorm=True)
    torch.manual_seed(1)
    one = SmartFL(variant, server_epochs=3)(w.updates, w.server())
    torch.manual_seed(2)
    two = SmartFL(variant, server_epochs=3)(w.updates, w.server())
    assert torch.equal(one.vector, two.vector)
    assert torch.equal(one.coefficients, two.coefficients)


@pytest.mark.parametrize("variant", ["literal", "centred"])
@both_paths
def test_a_client_that_overflows_is_left_out(variant, linear):
    """1.6: rows of 3e38 are finite, their predictions are not; the rest is optimised as if they were absent."""
    problem = Problem(linear)
    rows = problem.around(1, 1, -1)
    huge = torch.full((1, problem.spec.size), 3e38)
    rule = SmartFL(variant, server_epochs=10)
    without = rule(problem.updates(rows, [1, 2, 3]), problem.server())
    result = rule(problem.updates(torch.cat([huge, rows]), [9, 1, 2, 3]), problem.server())
    assert result.events == ("predictions on the proxy data are not finite, weight 0 for clients 0",)
    assert result.coefficients[0] == 0
    assert torch.equal(result.coefficients[1:], without.coefficients)
    assert torch.equal(result.vector, without.vector)


@pytest.mark.parametrize(("variant", "liars"), [("literal", 1), ("centred", 1), ("calibrated", 7)])
def test_a_client_whose_statistics_overflow_is_left_out(world, variant, liars):
    """Values of 1e22 before a BatchNorm: by the batch the logits are finite, but the variance to ship is infinite."""
    w = world(batchnorm=True, clients=10)
    rows = w.updates.matrix.clone()
    rows[:liars, :12] *= 1e22  # weights of the first layer
    updates = Updates.of(rows, origin=w.updates.origin, spec=w.updates.spec)
    result = SmartFL(variant, server_epochs=10, batchnorm="reestimate")(updates, w.server())
    assert torch.isfinite(result.vector).all()
    assert result.coefficients[:liars].tolist() == [0] * liars
    assert result.coefficients.sum().item() == pytest.approx(1)
    names = ", ".join(str(k) for k in range(liars))
    assert result.events == (f"predictions on the proxy data are not finite, weight 0 for clients {names}",)


@pytest.mark.parametrize("variant", ["literal", "centred"])
def test_a_client_that_overflows_by_the_batch_alone_is_left_out(world, variant):
    """By its own statistics client 0 is a model like others; by the batch's β + γ·x is 1e38 in size, and NaN behind.

    Its loss is no number, which is not the lowest.
    """
    w = world(batchnorm=True, clients=6)
    spec, rows = w.updates.spec, w.updates.matrix.clone()
    place = {e.name: slice(e.start, e.stop) for e in (*spec.parameters, *spec.buffers)}
    rows[0, place["0.bias"]], rows[0, place["1.weight"]] = -1e3, 1e22
    rows[0, place["3.weight"]] = 1e22 * torch.tensor([1.0, -1.0, 1.0]).repeat(4)
    updates = Updates.of(rows, origin=w.updates.origin, spec=spec)
    result = SmartFL(variant, server_epochs=10)(updates, w.server())
    assert float(result.coefficients[0]) == 0
    assert float(result.vector.abs().max()) < 10


def test_when_only_the_mix_overflows_at_the_end_the_best_client_is_taken(world, monkeypatch):
    """Nobody's statistics overflow by themselves, those of the mix found and of the start do."""
    w = world(batchnorm=True)
    plain = Hull.result

    def mixes_overflow(hull: Hull, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        vector, logits = plain(hull, p)
        return vector, logits if float(p.max()) == 1 else torch.full_like(logits, torch.nan)

    monkeypatch.setattr(Hull, "result", mixes_overflow)
    result = SmartFL("literal", server_epochs=2)(w.updates, w.server())
    assert result.events[-1] == "their mix overflows: the best client is taken"
    assert sorted(result.coefficients.tolist()) == [0, 0, 0, 1]
    best = int(result.coefficients.argmax())
    size = w.updates.spec.num_parameters
    assert torch.equal(result.vector[:size], w.updates.matrix[best, :size])


@both_paths
@pytest.mark.parametrize("scale", [100.0, 3e37])
def test_an_update_longer_than_twice_the_median_one_is_shortened_to_that(linear, scale):
    """Lengths 1, 2, 3, 4 and a huge one: the median is 3, so the fifth counts as one of length 6."""
    problem = Problem(linear)
    directions = F.normalize(problem.noise[:5], dim=1)
    lengths = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.9999])[:, None]
    origin = 0.1 * problem.good
    rule = partial(SmartFL, server_epochs=10)
    expected = rule()(problem.updates(origin + lengths * directions, origin=origin), problem.server())
    lengths[4] = scale
    result = rule()(problem.updates(origin + lengths * directions, origin=origin), problem.server())
    assert (expected.info["shortened"], result.info["shortened"]) == (0, 1)
    assert result.coefficients.tolist() == pytest.approx(expected.coefficients.tolist(), abs=1e-4)
    assert torch.allclose(result.vector, expected.vector, atol=1e-4)


@both_paths
def test_when_every_client_overflows_the_global_model_is_kept(linear):
    problem = Problem(linear)
    updates = problem.updates(torch.full((2, problem.spec.size), 3e38), origin=problem.good)
    result = SmartFL()(updates, problem.server())
    assert torch.equal(result.vector, problem.good)
    assert result.coefficients.tolist() == [0, 0]
    assert len(result.events) == 1


def test_when_only_the_mix_overflows_the_best_client_is_the_start():
    """Layers (1e38, 0) and (0, 1e38), both with finite predictions; ½·1e38 · ½·1e38 is not. Client 1 has the bias."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2))
    spec = FlatSpec.of(model)
    one = torch.tensor([1e38, 0.0, 0.0, 0.0, 0.0])
    two = torch.tensor([0.0, 1e38, -1e38, 2.0, 0.0])
    proxy = Proxy(torch.ones(4, 1), torch.zeros(4, dtype=torch.int64), 2)
    updates = Updates.of(torch.stack([one, two]), spec=spec)
    result = SmartFL(server_epochs=2, init="fedavg")(updates, Server(model=model, proxy=proxy))
    assert result.events[0] == "their mix overflows: started at the best client"
    assert torch.isfinite(spec.functional_call(model, result.vector, proxy.inputs)).all()
    assert result.coefficients.tolist() == [0, 1]


@pytest.mark.parametrize(("variant", "layered"), [*((variant, False) for variant in VARIANTS), ("calibrated", True)])
def test_a_huge_client_that_does_not_overflow_loses_its_weight(variant, layered):
    problem = Problem()
    rows = torch.cat([problem.around(1, 1, 1), 1e30 * problem.noise[5:6]])
    result = SmartFL(variant, server_epochs=50, layered=layered)(problem.updates(rows), problem.server())
    # It is shortened to twice the others' length, and a class may have some use for what is left of it.
    assert float(result.coefficients[3]) <= (0.05 if layered else 0)
    assert torch.isfinite(result.vector).all()


@every_variant
@pytest.mark.parametrize(("scale", "count"), [(1e3, 1), (1e30, 1)])
@both_paths
def test_a_huge_client_does_not_protect_the_other_attackers(variant, scale, count, linear):
    """Three honest clients, three with all signs flipped, and a seventh that is only large: it must not freeze p."""
    problem = Problem(linear)
    large = scale * problem.noise[7:].clamp(-1, 1)
    rows = torch.cat([problem.around(1, 1, 1, -1, -1, -1), large])
    result = SmartFL(variant, server_epochs=50)(problem.updates(rows, [1] * 6 + [count]), problem.server())
    assert float(result.coefficients[3:].sum()) < 0.1


@both_paths
def test_a_client_without_samples_does_not_stop_the_search_by_overflow(linear):
    """Weight 0 from the start, so the loss is finite, while ⟨∂L/∂w, w_i⟩ is beyond float32."""
    problem = Problem(linear)
    rows = torch.cat([problem.around(1, 1, 1, -1, -1, -1), 3e38 * problem.noise[7:].clamp(-1, 1)])
    result = SmartFL("literal", server_epochs=50)(problem.updates(rows, [1] * 6 + [0]), problem.server())
    assert float(result.coefficients[3:].sum()) < 0.1


def test_a_single_client_is_returned_as_it_is(world):
    w = world(batchnorm=True, clients=1)
    result = SmartFL()(w.updates, w.server())
    assert result.coefficients.tolist() == [1]
    assert torch.equal(result.vector, w.updates.matrix[0])


@every_variant
def test_a_single_client_that_overflows_is_not_shipped(variant):
    problem = Problem()
    updates = problem.updates(torch.full((1, problem.spec.size), 3e38), origin=problem.good)
    result = SmartFL(variant)(updates, problem.server())
    assert torch.equal(result.vector, problem.good)
    assert result.coefficients.tolist() == [0]
    assert result.events == ("predictions on the proxy data are not finite, weight 0 for clients 0",)


@every_variant
@both_paths
def test_equal_clients_get_equal_weights(variant, linear):
    problem = Problem(linear)
    rows = problem.around(1, -1, 1)[[0, 1, 1, 2]]
    result = SmartFL(variant, server_epochs=10)(problem.updates(rows), problem.server())
    assert float(result.coefficients[1]) == pytest.approx(float(result.coefficients[2]), abs=1e-9)


def test_a_client_that_reports_no_samples_can_still_grow():
    """1.6: p⁰ = 0 is allowed with projection; here it is the only client that is right."""
    problem = Problem()
    rule = SmartFL(server_epochs=150, init="fedavg")
    result = rule(problem.updates(problem.around(-1, 1, -1), [5, 0, 5]), problem.server())
    assert float(result.coefficients[1]) > 0.85


def test_counts_of_zero_all_round_start_uniform(world):
    w = world()
    zeros = replace(w.updates, num_examples=torch.zeros(4, dtype=torch.float64))
    assert SmartFL(server_epochs=0)(zeros, w.server()).coefficients.tolist() == [0.25] * 4


def test_the_uniform_start_does_not_see_reported_counts():
    problem = Problem()
    rows = problem.around(1, -1, 1)
    rule = partial(SmartFL, init="uniform", server_epochs=3)
    one = rule()(problem.updates(rows, [1, 1e9, 1]), problem.server())
    two = rule()(problem.updates(rows, [4, 5, 6]), problem.server())
    assert torch.equal(one.coefficients, two.coefficients)
    assert SmartFL(init="uniform", server_epochs=0)(problem.updates(rows, [1, 2, 3]), problem.server()).coefficients[
        0
    ] == pytest.approx(1 / 3)


@every_variant
def test_the_start_is_written_out(variant):
    assert SmartFL(variant).init == ("best" if variant == "calibrated" else "fedavg")
    assert SmartFL(variant, init="uniform").init == "uniform"


def test_literal_is_the_paper_to_the_letter(world):
    """Algorithm 1 once more in NumPy: Adam on p with ⟨G, w_i⟩, projection by bisection after every mini-batch of 8."""
    w = world()
    rule = SmartFL("literal", server_epochs=3, lr=0.02, batch_size=8)
    found = rule(w.updates, w.server()).coefficients.numpy()
    generator = torch.Generator().manual_seed(7)
    rows, p = w.updates.matrix, w.updates.weights.numpy()
    m, v, t = np.zeros(4), np.zeros(4), 0
    for _ in range(3):
        for index in torch.randperm(24, generator=generator).split(8):
            mixed = (torch.from_numpy(p).float() @ rows).requires_grad_()
            named = {"weight": mixed[:9].view(3, 3), "bias": mixed[9:]}
            logits = torch.func.functional_call(w.model, named, (w.proxy.inputs[index],))
            nn.functional.cross_entropy(logits, w.proxy.labels[index]).backward()
            g, t = (rows @ mixed.grad).double().numpy(), t + 1
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            low, high = p.max() - 1, p.max()
            for _ in range(100):
                theta = (low + high) / 2
                low, high = (theta, high) if np.maximum(p - theta, 0).sum() > 1 else (low, theta)
            p = np.maximum(p - low, 0)
    np.testing.assert_allclose(found, p, atol=1e-5)


def test_short_proxy_data_are_one_batch_an_epoch(world):
    """|D_s| = 24 < 32: one step per epoch; batches of 10 are three, the last one short."""
    w = world()
    assert SmartFL(server_epochs=5)(w.updates, w.server()).info["steps"] == 5
    assert SmartFL(server_epochs=5, batch_size=10)(w.updates, w.server()).info["steps"] == 15


def test_a_class_without_samples_is_allowed(world):
    w = world()
    keep = w.proxy.labels != 2
    proxy = Proxy(w.proxy.inputs[keep], w.proxy.labels[keep], 3)
    result = SmartFL(server_epochs=3)(w.updates, w.server(proxy=proxy))
    assert torch.isfinite(result.vector).all()


def test_diagnostics(world):
    """‖p − p⁰‖₁ and 1/Σp² are reported."""
    w = world()
    result = SmartFL("centred", server_epochs=2)(w.updates, w.server())
    p = result.coefficients
    assert result.info["moved"] == pytest.approx(float((p - w.updates.weights).abs().sum()))
    assert result.info["effective_clients"] == pytest.approx(float(1 / (p * p).sum()))


def test_what_is_missing_is_said(world):
    w = world()
    rule = SmartFL()
    for server in (None, w.server(proxy=None), w.server(model=None)):
        with pytest.raises(UserError, match="needs a server with a model and proxy data"):
            rule(w.updates, server)
    with pytest.raises(UserError, match="needs labelled proxy data"):
        rule(w.updates, w.unlabelled())


@pytest.mark.parametrize("settings", [{"server_epochs": -1}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        SmartFL(**settings)


def test_only_the_statistics_leave_the_hull(world):
    """docs/batchnorm.md: re-estimated statistics are the server's own, the parameters are the mix."""
    w = world(batchnorm=True)
    result = SmartFL(server_epochs=4, layered=False)(w.updates, w.server())
    mixed, parameters = w.updates.mix(result.coefficients), w.updates.spec.num_parameters
    torch.testing.assert_close(result.vector[:parameters], mixed[:parameters])
    assert not torch.allclose(result.vector[parameters:], mixed[parameters:])


def test_dust_is_swept_from_the_weights():
    """Four clients: weights below 0.001/4 go, the rest is made to sum to one."""
    p = without_dust(torch.tensor([0.6, 0.3998, 0.0001, 0.0001], dtype=torch.float64))
    assert p.tolist() == pytest.approx([0.6 / 0.9998, 0.3998 / 0.9998, 0, 0])


@both_paths
def test_a_client_that_says_the_missing_class_about_everything_gets_no_weight(linear):
    """No sample has class 2, but every sample says that it is not of class 2."""
    problem = Problem(linear)
    there = problem.proxy.labels != 2
    proxy = Proxy(problem.proxy.inputs[there], problem.proxy.labels[there], 3)
    loud = problem.good.clone()
    loud[-1] = 50.0  # the bias of class 2
    server = Server(model=problem.model, proxy=proxy, generator=torch.Generator().manual_seed(5))
    result = SmartFL(server_epochs=100)(problem.updates(torch.stack([problem.good, loud, problem.good])), server)
    assert float(result.coefficients[1]) < 0.01


def test_the_discount_of_missing_classes_is_part_of_the_loss(monkeypatch):
    """Two clients agree but for class 2, of which there is no sample: discounted entirely, neither is better."""
    problem = Problem()
    there = problem.proxy.labels != 2
    proxy = Proxy(problem.proxy.inputs[there], problem.proxy.labels[there], 3)
    silent = problem.good.clone()
    silent[-1] = -5.0  # the bias of class 2
    rows = problem.updates(torch.stack([problem.good, silent]))
    server = Server(model=problem.model, proxy=proxy, generator=torch.Generator().manual_seed(5))
    rule = partial(SmartFL, init="fedavg", restraint=0.0)
    assert rule()(rows, server).coefficients[0] < 0.45
    entirely = torch.tensor([0.0, 0.0, -1e9])
    monkeypatch.setattr("smartfl.aggregators.calibration.log_prior", lambda labels, num_classes: entirely)
    assert rule()(rows, server).coefficients.tolist() == pytest.approx([0.5, 0.5], abs=1e-6)


def test_small_gradients_are_not_magnified(monkeypatch):
    """Two clients differ a lot, a third hardly from the first: with plain Adam the small difference steps as fast."""
    problem = Problem()
    rows = problem.around(1, -1, 1)
    rows[2] = rows[0] + 1e-3 * problem.noise[5]
    apart = {}
    for name, optimizer in (("steady", SteadyAdam), ("plain", FlatAdam)):
        monkeypatch.setattr("smartfl.aggregators.smartfl.SteadyAdam", optimizer)
        rule = SmartFL(server_epochs=20, init="fedavg", mistrust=0.0, restraint=0.0)
        p = rule(problem.updates(rows), problem.server()).coefficients
        apart[name] = float((p[0] - p[2]).abs())
    assert apart["steady"] < 0.1 * apart["plain"]
