from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.sageflow import Sageflow, losses_and_entropies, sageflow_weights
from smartfl.errors import UserError

LOSSES = torch.tensor([0.5, 1, 2, 0.25])
ENTROPIES = torch.tensor([0.3, 0.6, 1.4, 1.0])
ONES = torch.ones(4)


@pytest.mark.parametrize(("delta", "expected"), [(1.0, [0.666667, 0.333333, 0, 0]), (5.0, [0.969697, 0.030303, 0, 0])])
def test_worked_example(delta, expected):
    """1/0.5 : 1/1 = 2 : 1; δ = 5: 32 : 1. The last client has H = 1.0, which is not below the threshold."""
    got = sageflow_weights(LOSSES, ENTROPIES, ONES, 1.0, delta)
    torch.testing.assert_close(got, torch.tensor(expected).double(), atol=1e-6, rtol=0)


def test_counts_multiply_and_zero_counts_of_all_do_not_matter():
    """N = (1, 4): 1/0.5 · 1 : 1/1 · 4 = 2 : 4."""
    got = sageflow_weights(LOSSES, ENTROPIES, torch.tensor([1.0, 4, 9, 9]))
    torch.testing.assert_close(got, torch.tensor([1 / 3, 2 / 3, 0, 0]).double())
    none = sageflow_weights(LOSSES, ENTROPIES, torch.tensor([0.0, 0, 9, 9]))
    torch.testing.assert_close(none, torch.tensor([2 / 3, 1 / 3, 0, 0]).double())


def test_a_loss_of_zero_and_a_large_exponent_stay_finite():
    got = sageflow_weights(torch.tensor([0.0, 0.0, 1e30]), torch.zeros(3), torch.ones(3), 1.0, 100.0)
    torch.testing.assert_close(got, torch.tensor([0.5, 0.5, 0]).double())


def test_nobody_passes_the_filter():
    assert sageflow_weights(LOSSES, ENTROPIES + 9, ONES).tolist() == [0, 0, 0, 0]


def test_losses_and_entropies_by_hand():
    """Logits (ln 3, 0): p = (0.75, 0.25); loss of label 1 is ln 4; H = 0.75 ln(4/3) + 0.25 ln 4."""
    logits = torch.tensor([[[np.log(3.0), 0.0]], [[200.0, -200.0]]])
    losses, entropies = losses_and_entropies(logits, torch.tensor([1]))
    np.testing.assert_allclose(losses.numpy(), [np.log(4), 400], rtol=1e-6)
    expected = 0.75 * np.log(4 / 3) + 0.25 * np.log(4)
    np.testing.assert_allclose(entropies.numpy(), [expected, 0], rtol=1e-6, atol=1e-12)


def oracle(w, updates, threshold, delta, by_examples):
    """Loop over clients in NumPy."""
    beta = []
    for row, count in zip(updates.matrix, updates.num_examples.tolist(), strict=True):
        with torch.no_grad():
            w.model.eval()
            z = updates.spec.functional_call(w.model, row, w.proxy.inputs).double().numpy()
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(p)), w.proxy.labels.numpy()]).mean()
        entropy = -(p * np.log(p)).sum(1).mean()
        beta.append((entropy < threshold) * (count if by_examples else 1) / loss**delta)
    return np.array(beta) / max(sum(beta), 1e-300)


@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize("by_examples", [False, True])
def test_agrees_with_the_formula_in_numpy(world, batchnorm, by_examples):
    w = world(batchnorm=batchnorm, clients=6, spread=1.0)
    threshold = 0.8
    expected = oracle(w, w.updates, threshold, 2.0, by_examples)
    assert 0 < (expected > 0).sum() < 6, "the filter must have something to do"
    result = Sageflow(entropy_threshold=threshold, delta=2.0, weight_by_examples=by_examples)(w.updates, w.server())
    np.testing.assert_allclose(result.coefficients.numpy(), expected, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(result.vector.numpy(), expected @ w.updates.matrix.numpy(), rtol=1e-4, atol=1e-6)
    assert result.events == ()


def test_when_all_are_filtered_the_losses_decide_or_the_model_is_kept(world):
    w = world()
    strict = Sageflow(entropy_threshold=1e-6)(w.updates, w.server())
    np.testing.assert_allclose(strict.coefficients.numpy(), oracle(w, w.updates, 9, 1.0, True), rtol=1e-5)
    assert "loss alone" in strict.events[0]
    kept = Sageflow(entropy_threshold=1e-6, fallback="keep")(w.updates, w.server())
    assert torch.equal(kept.vector, w.updates.origin)
    assert "kept" in kept.events[0]


def test_an_overflowing_client_gets_no_weight(world):
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    result, without = Sageflow()(huge, w.server()), Sageflow()(w.updates, w.server())
    torch.testing.assert_close(result.vector, without.vector)
    assert result.coefficients[-1] == 0
    assert "9" in result.events[0]


def test_only_overflowing_clients_keep_the_global_model(world):
    w = world()
    result = Sageflow()(w.updates.with_matrix(torch.full_like(w.updates.matrix, 3e38)), w.server())
    assert torch.equal(result.vector, w.updates.origin)
    assert len(result.events) == 2


def test_a_huge_finite_row_gives_a_finite_result(world):
    w = world()
    result = Sageflow()(w.with_row(9, torch.full_like(w.updates.origin, 1e30)), w.server())
    assert torch.isfinite(result.vector).all()


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    assert torch.equal(Sageflow()(plus, w.server()).vector, Sageflow()(w.updates, w.server()).vector)


def test_missing_proxy_data_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="labelled"):
        Sageflow()(w.updates, w.unlabelled())
    for settings in ({"entropy_threshold": 0.0}, {"delta": -1.0}, {"fallback": "panic"}):
        with pytest.raises(UserError, match=next(iter(settings))):
            Sageflow(**settings)
