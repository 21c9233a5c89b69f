from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedbe import FedBE, diagonal_gaussian, directional_gaussian, swa_mean
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec

SPEC = FlatSpec((Entry("a", (2,), 0), Entry("b", (1,), 2)))


def test_directional_gaussian_by_hand():
    """Tensor a: Δ = (3, 4), (0, 5): norms 5, 5, directions (0.6, 0.8), (0, 1), mean (0.3, 0.9), std (0.3, 0.1),
    n̄ = 5; with ε = 1 and c = 0.1: 5 (0.33, 0.91) = (1.65, 4.55).
    Tensor b: Δ = 2, 0: norms 2, 0, directions 1, 0, mean 0.5, std 0.5, n̄ = 1, ε = −1: 0.5 − 0.05 = 0.45.
    """
    deltas = torch.tensor([[3.0, 4.0, 2.0], [0.0, 5.0, 0.0]])
    got = directional_gaussian(deltas, SPEC, 0.1, torch.tensor([1.0, 1.0, -1.0]).double())
    torch.testing.assert_close(got, torch.tensor([1.65, 4.55, 0.45]).double())


def test_directional_variance_is_clamped_and_unchanged_tensors_stay():
    """Equal directions: std = √1e-5, so a = 5 (0.6 + 0.1 √1e-5, 0.8); nobody changed b: 0, not 0/0."""
    deltas = torch.tensor([[3.0, 4.0, 0.0], [3.0, 4.0, 0.0]])
    got = directional_gaussian(deltas, SPEC, 0.1, torch.tensor([1.0, 0.0, 1.0]).double())
    expected = torch.tensor([3 + 0.5 * np.sqrt(1e-5), 4.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(got, expected)


def test_diagonal_gaussian_by_hand():
    """w = 0, 4 with p = 1/4, 3/4: μ = 3, σ² = 9/4 + 3/4 = 3; ε = 2: 3 + 2√3."""
    got = diagonal_gaussian(torch.tensor([[0.0], [4.0]]), torch.tensor([0.25, 0.75]), torch.tensor([2.0]).double())
    torch.testing.assert_close(got, torch.tensor([3 + 2 * 3**0.5], dtype=torch.float64))


@pytest.mark.parametrize(("total", "expected"), [(1, 1.0), (2, 1.5), (4, 3.0), (5, 4.0)])
def test_swa_starts_half_way(total, expected):
    """Total 4: epochs 2, 3, 4 have mean 3; total 5: 3, 4, 5 have mean 4."""
    assert float(swa_mean((torch.tensor([float(e)]) for e in range(1, total + 1)), total)) == expected


def test_without_an_epoch_it_is_exactly_fedavg(world):
    w = world(batchnorm=True)
    result, fedavg = FedBE(server_epochs=0)(w.updates, w.unlabelled()), FedAvg()(w.updates)
    assert torch.equal(result.vector, fedavg.vector)


@pytest.mark.parametrize("distribution", ["gaussian", "gaussian_paper", "dirichlet"])
def test_the_first_step_follows_the_sharpened_mean_of_probabilities(world, distribution):
    """Members: FedAvg, clients, and the drawn models; one Adam step of lr against the sign of ∇KL."""
    w = world(spread=1.0)
    rule = FedBE(samples=2, distribution=distribution, server_epochs=1, lr=0.01, batch_size=100)
    generator = w.unlabelled().generator
    drawn = [rule.sample_model(w.updates, generator) for _ in range(2)]
    start = FedAvg()(w.updates).vector
    members = [w.updates.spec.functional_call(w.model, v, w.proxy.inputs) for v in (start, *drawn, *w.updates.matrix)]
    mean = torch.stack([z.detach().double().softmax(1) for z in members]).mean(0)
    q = mean**2 / (mean**2).sum(1, keepdim=True)
    vector = start.clone().requires_grad_()
    log_p = F.log_softmax(w.updates.spec.functional_call(w.model, vector, w.proxy.inputs), 1)
    (gradient,) = torch.autograd.grad(-(q * log_p).sum(1).mean(), vector)
    assert gradient.abs().min() > 1e-5
    result = rule(w.updates, w.unlabelled())
    torch.testing.assert_close(result.vector, start - 0.01 * gradient.sign(), rtol=0, atol=2e-5)
    assert result.info["members"] == 7


def test_dirichlet_samples_lie_between_the_clients(world):
    w = world(batchnorm=True)
    low, high = w.updates.matrix.min(0).values, w.updates.matrix.max(0).values
    generator = torch.Generator().manual_seed(0)
    first, second = (FedBE(distribution="dirichlet").sample_model(w.updates, generator) for _ in range(2))
    for vector in (first, second):
        assert ((vector >= low - 1e-5) & (vector <= high + 1e-5)).all()
    assert not torch.equal(first, second)


@pytest.mark.parametrize("distribution", ["gaussian", "gaussian_paper"])
def test_gaussian_samples_carry_the_average_buffers(world, distribution):
    w = world(batchnorm=True, spread=3.0)
    size = w.updates.spec.num_parameters
    vector = FedBE(distribution=distribution).sample_model(w.updates, torch.Generator().manual_seed(0))
    assert torch.equal(vector[size:], FedAvg()(w.updates).vector[size:])
    assert not torch.allclose(vector[:size], FedAvg()(w.updates).vector[:size])


@pytest.mark.parametrize("swa", [True, False])
def test_result_is_finite_deterministic_and_keeps_variances_positive(world, swa):
    w = world(batchnorm=True, samples=25)
    rule = FedBE(samples=3, server_epochs=4, batch_size=8, swa=swa)
    first, again = rule(w.updates, w.unlabelled()), rule(w.updates, w.unlabelled())
    assert torch.equal(first.vector, again.vector)
    assert torch.isfinite(first.vector).all()
    assert all((first.vector[v] > 0).all() for v in w.updates.spec.variances)


def test_swa_re_estimates_batchnorm_on_the_proxy_data(world):
    w = world(batchnorm=True)
    spec = w.updates.spec
    result = spec.unflatten(FedBE(samples=1, server_epochs=2, batch_size=5)(w.updates, w.unlabelled()).vector)
    hidden = F.linear(w.proxy.inputs, result["0.weight"], result["0.bias"])
    torch.testing.assert_close(result["1.running_mean"], hidden.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result["1.running_var"], hidden.var(0), rtol=1e-4, atol=1e-5)


def test_labels_are_never_read(world):
    w = world()
    absurd = replace(w.proxy, labels=torch.full_like(w.proxy.labels, 10**9))
    rule = FedBE(samples=2, server_epochs=2)
    assert torch.equal(rule(w.updates, w.unlabelled()).vector, rule(w.updates, w.server(proxy=absurd)).vector)


def test_a_given_teacher_is_the_whole_ensemble(world):
    w = world()
    rule = FedBE(server_epochs=40, lr=0.05, samples=0)
    z = 4 * w.proxy.inputs
    vector = rule(w.updates, w.unlabelled(teacher=z)).vector
    agree = w.updates.spec.functional_call(w.model, vector, w.proxy.inputs).argmax(1) == z.argmax(1)
    assert agree.double().mean() > 0.9
    broken = rule(w.updates, w.unlabelled(teacher=z / 0))
    assert torch.equal(broken.vector, FedAvg()(w.updates).vector)
    assert broken.events


@pytest.mark.parametrize("distribution", ["gaussian", "gaussian_paper", "dirichlet"])
@pytest.mark.parametrize("size", [1e30, 3e38])
def test_huge_rows_give_a_finite_result(world, distribution, size):
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, size))
    rule = FedBE(samples=2, server_epochs=2, distribution=distribution)
    result = rule(huge, w.unlabelled())
    assert torch.isfinite(result.vector).all()
    if size == 3e38:
        torch.testing.assert_close(result.vector, rule(w.updates, w.unlabelled()).vector)
        assert "9" in result.events[0]


def test_sampled_models_that_overflow_are_left_out(world):
    w = world()
    huge = FedBE(samples=3, server_epochs=1, var_scale=1e39)
    result = huge(w.updates, w.unlabelled())
    assert torch.isfinite(result.vector).all()
    assert result.info["members"] == 5
    assert "3 sampled" in result.events[0]


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    rule = FedBE(samples=2, server_epochs=2)
    assert torch.equal(rule(plus, w.unlabelled()).vector, rule(w.updates, w.unlabelled()).vector)


def test_missing_proxy_data_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="FedBE needs a server"):
        FedBE()(w.updates)
    for settings in ({"samples": -1}, {"distribution": "cauchy"}, {"sharpening": 0.0}, {"concentration": -1.0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            FedBE(**settings)
