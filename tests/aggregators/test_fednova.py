from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fednova import FedNova, local_lengths, nova_factors
from smartfl.errors import UserError
from smartfl.types import Updates

ALPHA = torch.tensor([0.5, 0.3, 0.2]).double()
TAU = torch.tensor([2, 5, 10])


def test_worked_example():
    """τ_eff = 1 + 1.5 + 2 = 4.5; 4.5 (0.5·(−0.2)/2 + 0.3·(−0.4)/5 + 0.2·(−1)/10) = −0.423."""
    factors, effective = nova_factors(ALPHA, local_lengths(TAU))
    assert effective == pytest.approx(4.5)
    assert float(factors @ torch.tensor([-0.2, -0.4, -1.0]).double()) == pytest.approx(-0.423)
    rows = torch.tensor([[-0.2], [-0.4], [-1.0]]) + 7
    result = FedNova()(Updates.of(rows, [5, 3, 2], [7.0], num_steps=TAU))
    assert float(result.vector) == pytest.approx(6.577, abs=1e-6)
    assert result.info["tau_eff"] == pytest.approx(4.5)


def test_lengths_with_momentum():
    """ρ = 0.9, τ = 2: (2 − 0.9·0.19/0.1)/0.1 = 2.9."""
    expected = torch.tensor([2.9, 13.1441, 41.381060]).double()
    torch.testing.assert_close(local_lengths(TAU, 0.9), expected, atol=1e-5, rtol=0)


def test_lengths_with_momentum_are_sums_of_geometric_series():
    """a = Σ_{s=1}^{τ} (1 + ρ + … + ρ^{s−1})."""
    for tau in range(6):
        expected = sum(0.6**k for s in range(1, tau + 1) for k in range(s))
        assert float(local_lengths(torch.tensor([tau]), 0.6)) == pytest.approx(expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equal_steps_are_fedavg(world, momentum):
    w = world(batchnorm=True)
    result, fedavg = FedNova(momentum)(w.updates), FedAvg()(w.updates)
    torch.testing.assert_close(result.vector, fedavg.vector)
    torch.testing.assert_close(result.coefficients, fedavg.coefficients)


def test_buffers_get_the_normalised_factors(world):
    """c_i ∝ α_i/τ_i with α = (1, 2, 3, 4)/10 and τ = (1, 2, 3, 4): every client counts the same."""
    w = world(batchnorm=True)
    u = w.updates
    updates = Updates.of(u.matrix, u.num_examples, u.origin, num_steps=[1, 2, 3, 4], spec=u.spec)
    result = FedNova()(updates)
    size = u.spec.num_parameters
    np.testing.assert_allclose(result.coefficients.numpy(), [0.25] * 4)
    torch.testing.assert_close(result.vector[size:], u.matrix[:, size:].mean(0))
    # τ_eff = (1 + 4 + 9 + 16)/10 = 3 and α_i/τ_i = 0.1, so the step is 0.3 ΣΔ_i.
    torch.testing.assert_close(result.vector[:size], u.origin[:size] + 0.3 * u.deltas.sum(0))


def test_a_client_without_steps_counts_for_nothing():
    """α = (½, ½), τ = (4, 0): τ_eff = 2, c = (2·½/4, 0) = (¼, 0)."""
    result = FedNova()(Updates.of([[8.0], [100.0]], num_steps=[4, 0]))
    assert result.vector.tolist() == [2]
    assert result.coefficients.tolist() == [1, 0]
    assert "no local step" in result.events[0]


def test_nobody_made_a_step():
    result = FedNova()(Updates.of([[8.0], [100.0]], origin=[3.0], num_steps=[0, -1]))
    assert result.vector.tolist() == [3]
    assert "kept" in result.events[0]


def test_nan_rows_are_as_good_as_absent_and_huge_rows_stay_finite():
    with_nan = FedNova()(Updates.of([[1.0], [torch.nan], [5.0]], [1, 9, 3], num_steps=[1, 1, 2]))
    without = FedNova()(Updates.of([[1.0], [5.0]], [1, 3], num_steps=[1, 2]))
    assert torch.equal(with_nan.vector, without.vector)
    assert torch.isfinite(FedNova()(Updates.of([[1e30], [5.0]], num_steps=[1, 50])).vector).all()


def test_bad_momentum_is_the_users_mistake():
    for momentum in (-0.1, 1.0):
        with pytest.raises(UserError, match="momentum"):
            FedNova(momentum)
