from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from smartfl.aggregators.fltrust import FLTrust, trust_scores, trusted_update
from smartfl.errors import UserError
from smartfl.types import Updates

G0 = torch.tensor([1.0, 0.0])
DELTAS = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [3.0, 4.0]])


def test_worked_example():
    """cos = (1, 0, −1, 0.6), TS = (1, 0, 0, 0.6); (1·(1,0) + 0.6·(0.6,0.8))/1.6 = (0.85, 0.3)."""
    scores, norms = trust_scores(DELTAS, G0)
    torch.testing.assert_close(scores, torch.tensor([1.0, 0, 0, 0.6]).double())
    assert norms.tolist() == [2, 3, 1, 5]
    torch.testing.assert_close(trusted_update(DELTAS, G0, scores, norms), torch.tensor([0.85, 0.3]).double())


def test_clients_or_server_that_did_not_move_have_no_score():
    assert trust_scores(torch.zeros(2, 2), G0)[0].tolist() == [0, 0]
    assert trust_scores(DELTAS, torch.zeros(2))[0].tolist() == [0] * 4


def oracle(w, rule, updates):
    """The formula in NumPy, given the server's own update."""
    server = w.server()
    g0 = rule.server_update(updates, server).double().numpy()
    deltas = updates.deltas.double().numpy()
    norms = np.linalg.norm(deltas, axis=1)
    ts = np.maximum(0, deltas @ g0 / norms / np.linalg.norm(g0))
    step = (ts / norms * np.linalg.norm(g0)) @ deltas / ts.sum()
    return updates.origin[: len(g0)].numpy() + rule.eta * step, ts / ts.sum(), np.linalg.norm(g0)


@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_agrees_with_the_formula_in_numpy(world, batchnorm, optimizer):
    w = world(batchnorm=batchnorm)
    rule = FLTrust(server_epochs=2, batch_size=8, optimizer=optimizer, lr=0.05, eta=0.5)
    result = rule(w.updates, w.server())
    expected, p, _ = oracle(w, rule, w.updates)
    size = w.updates.spec.num_parameters
    np.testing.assert_allclose(result.vector[:size].numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.coefficients.numpy(), p, atol=1e-9)
    buffers = p @ w.updates.matrix[:, size:].double().numpy()
    np.testing.assert_allclose(result.vector[size:].numpy(), buffers, rtol=1e-5)


def test_the_step_is_never_longer_than_the_servers(world):
    w = world(clients=6)
    rule = FLTrust(server_epochs=3, lr=0.05, eta=0.7)
    result = rule(w.updates, w.server())
    *_, norm = oracle(w, rule, w.updates)
    assert float((result.vector - w.updates.origin).norm()) <= 0.7 * norm * (1 + 1e-6)


def test_scaling_updates_changes_nothing(world):
    w = world()
    scales = torch.tensor([1.0, 100.0, 1e-3, 1e6])
    scaled = w.updates.with_matrix(w.updates.origin + scales[:, None] * w.updates.deltas)
    plain, other = (FLTrust(lr=0.05)(u, w.server()) for u in (w.updates, scaled))
    torch.testing.assert_close(plain.vector, other.vector, rtol=1e-3, atol=1e-4)


def test_sample_counts_are_ignored(world):
    w = world()
    other = replace(w.updates, num_examples=torch.tensor([1e9, 1, 1, 1], dtype=torch.float64))
    assert torch.equal(FLTrust()(w.updates, w.server()).vector, FLTrust()(other, w.server()).vector)


def test_without_a_trusted_client_the_global_model_is_kept(world):
    w = world()
    rule = FLTrust(lr=0.05)
    g0 = rule.server_update(w.updates, w.server())
    against = w.updates.with_matrix(w.updates.origin - g0 * torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    result = rule(against, w.server())
    assert torch.equal(result.vector, w.updates.origin)
    assert result.coefficients.tolist() == [0] * 4
    assert "kept" in result.events[0]


def test_a_server_that_did_not_train_or_diverged_keeps_the_global_model(world):
    w = world()
    for rule in (FLTrust(server_epochs=0), FLTrust(lr=3e37, batch_size=8)):
        result = rule(w.updates, w.server())
        assert torch.equal(result.vector, w.updates.origin)
        assert "kept" in result.events[0]


@pytest.mark.parametrize("size", [1e30, 3e38])
def test_a_majority_of_huge_rows_is_shrunk_to_size(world, size):
    w = world(clients=5)
    matrix = w.updates.matrix.clone()
    matrix[:3] = size * torch.sign(torch.randn(3, matrix.shape[1], generator=torch.Generator().manual_seed(2)))
    rule = FLTrust(lr=0.05)
    result = rule(w.updates.with_matrix(matrix), w.server())
    assert torch.isfinite(result.vector).all()
    *_, norm = oracle(w, rule, w.updates)
    assert float((result.vector - w.updates.origin).norm()) <= norm * (1 + 1e-6)


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    result = FLTrust()(plus, w.server())
    assert torch.equal(result.vector, FLTrust()(w.updates, w.server()).vector)
    assert result.dropped[0].id == 9


def test_it_bears_all_but_one():
    assert FLTrust().tolerates(10) == 9


def test_missing_proxy_data_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="FLTrust"):
        FLTrust()(w.updates)
    with pytest.raises(UserError, match="labelled"):
        FLTrust()(w.updates, w.unlabelled())
    with pytest.raises(UserError, match="eta"):
        FLTrust(eta=0)
    with pytest.raises(UserError, match="server_epochs"):
        FLTrust(server_epochs=-1)


def test_one_client_moves_by_the_servers_norm_in_its_own_direction(world):
    w = world()
    one = Updates.of(w.updates.matrix[:1], origin=w.updates.origin, spec=w.updates.spec)
    rule = FLTrust(lr=0.05)
    g0 = rule.server_update(one, w.server())
    assert float(one.deltas[0] @ g0) > 0
    step = rule(one, w.server()).vector - one.origin
    torch.testing.assert_close(step, one.deltas[0] / one.deltas[0].norm() * g0.norm(), rtol=1e-4, atol=1e-6)
