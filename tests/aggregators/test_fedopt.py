from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedopt import FedAdagrad, FedAdam, FedYogi, fedopt_step
from smartfl.errors import UserError
from smartfl.types import Updates

RULES = [FedAdam, FedYogi, FedAdagrad]


@pytest.mark.parametrize(("rule", "expected"), [(FedAdam, 0.0905028), (FedYogi, 0.0904988), (FedAdagrad, 0.0099005)])
def test_worked_example(rule, expected):
    """Δ = 0.1, η = 0.1, v₀ = τ² = 1e-6; Adam: m = 0.01, v = 1.0099e-4, 0.1·0.01/(0.0100494 + 0.001)."""
    result = rule(eta=0.1)(Updates.of(torch.tensor([[0.05], [0.15]], dtype=torch.float64)))
    assert float(result.vector) == pytest.approx(expected, abs=5e-8)


def test_worked_example_with_a_zero_start():
    """Adam with v₀ = 0: v = 1e-4, 0.1·0.01/(0.01 + 0.001) = 0.0909091."""
    zero = torch.zeros(1).double()
    step, _, v = fedopt_step(zero + 0.1, zero, zero, FedAdam().second_moment, 0.1, 0.9, 1e-3)
    assert float(step) == pytest.approx(0.0909091, abs=5e-8)
    assert float(v) == pytest.approx(1e-4)


def oracle(name, rounds, eta, b1, b2, tau):
    """The three optimisers in NumPy, from 0."""
    w, m, v = np.zeros(3), np.zeros(3), np.full(3, tau**2)
    for target in rounds:
        d = target - w
        m = b1 * m + (1 - b1) * d
        if name == "FedAdam":
            v = b2 * v + (1 - b2) * d**2
        elif name == "FedYogi":
            v = v - (1 - b2) * d**2 * np.sign(v - d**2)
        else:
            v = v + d**2
        w = w + eta * m / (np.sqrt(v) + tau)
    return w


@pytest.mark.parametrize("rule", RULES)
def test_four_rounds_agree_with_numpy(rule):
    rounds = np.random.default_rng(3).normal(size=(4, 2, 3))
    instance = rule(eta=0.03, beta1=0.8, beta2=0.9, tau=0.01)
    vector = torch.zeros(3, dtype=torch.float64)
    for rows in rounds:
        vector = instance(Updates.of(torch.from_numpy(rows), [1, 3], vector)).vector
    expected = oracle(rule.__name__, rounds[:, 0] / 4 + 3 * rounds[:, 1] / 4, 0.03, 0.8, 0.9, 0.01)
    np.testing.assert_allclose(vector.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_buffers_are_averaged_never_optimised(world, rule):
    w = world(batchnorm=True)
    size = w.updates.spec.num_parameters
    result = rule(eta=10.0)(w.updates)
    assert torch.equal(result.vector[size:], FedAvg()(w.updates).vector[size:])
    assert not torch.allclose(result.vector[:size], FedAvg()(w.updates).vector[:size])
    assert torch.equal(result.coefficients, w.updates.weights)


@pytest.mark.parametrize("rule", RULES)
def test_the_state_survives_a_round_trip(world, rule):
    w = world()
    first, resumed = rule(), rule()
    assert first.state_dict() == {}
    first(w.updates)
    resumed.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
    assert torch.equal(first(w.updates).vector, resumed(w.updates).vector)
    assert not torch.equal(resumed(w.updates).vector, rule()(w.updates).vector)


@pytest.mark.parametrize("rule", RULES)
def test_nan_rows_are_as_good_as_absent_and_an_empty_round_leaves_the_moments(rule):
    first, other = rule(), rule()
    first(Updates.of([[1.0], [torch.nan]]))
    other(Updates.of([[1.0]]))
    first(Updates.of([[torch.inf]]))
    for key in ("m", "v"):
        assert torch.equal(first.state_dict()[key], other.state_dict()[key])


@pytest.mark.parametrize("rule", RULES)
def test_a_huge_row_moves_the_model_by_a_bounded_step(rule):
    """|m|/√v ≤ (1 − β1)/√(1 − β2) = 1 after one round, so one step is at most about η, whatever was sent."""
    instance = rule(eta=0.1)
    for _ in range(3):
        result = instance(Updates.of([[1e30], [1.0]]))
        assert abs(float(result.vector)) <= 0.3


def test_the_names_have_their_own_learning_rates():
    assert (FedAdam().eta, FedYogi().eta, FedAdagrad().eta) == (0.1, 0.01, 0.1)


@pytest.mark.parametrize("settings", [{"eta": 0.0}, {"beta1": 1.0}, {"beta2": -0.1}, {"tau": 0.0}])
def test_bad_settings_are_the_users_mistake(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        FedAdam(**settings)
