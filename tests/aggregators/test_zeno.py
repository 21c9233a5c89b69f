from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from smartfl.aggregators.zeno import Zeno, zeno_scores
from smartfl.errors import UserError


def test_worked_example():
    """L = ½x² at x = 1, γ = 0.1, ρ = 5e-4, steps v = 1, −1, 10, 0.5; e.g. v = 10: 0.5 − 0 − 0.05 = 0.45."""
    v = torch.tensor([1, -1, 10, 0.5], dtype=torch.float64)
    scores = zeno_scores(torch.tensor(0.5).double(), 0.5 * (1 - 0.1 * v) ** 2, v**2, 5e-4)
    torch.testing.assert_close(
        scores, torch.tensor([0.0945, -0.1055, 0.45, 0.048625], dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_a_loss_that_is_not_finite_scores_worst():
    scores = zeno_scores(torch.tensor(1.0), torch.tensor([0.5, torch.nan, torch.inf]), torch.zeros(3), 0.1)
    assert scores.tolist() == [0.5, -torch.inf, -torch.inf]


def oracle(w, updates, b, gamma, rho, samples):
    """Scores with every proxy sample, in NumPy and one model at a time."""

    def loss(row):
        w.model.eval()
        z = updates.spec.functional_call(w.model, row, w.proxy.inputs[:samples])
        return float(F.cross_entropy(z, w.proxy.labels[:samples]))

    size = updates.spec.num_parameters
    scores = []
    for row in updates.matrix:
        step = row.clone()
        step[:size] = updates.origin[:size] + gamma * (row - updates.origin)[:size]
        square = float(((row - updates.origin)[:size].double() ** 2).sum())
        scores.append(loss(updates.origin) - loss(step) - rho * square)
    return np.sort(np.argsort(scores)[b:])


@pytest.mark.parametrize("batchnorm", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_agrees_with_ranking_in_numpy(world, batchnorm, gamma):
    """With a batch as large as the proxy data, nothing is random."""
    w = world(batchnorm=batchnorm, clients=6)
    chosen = oracle(w, w.updates, 2, gamma, gamma / 200, 24)
    result = Zeno(b=2, gamma=gamma, batch_size=24)(w.updates, w.server())
    assert np.flatnonzero(result.coefficients.numpy()).tolist() == chosen.tolist()
    mean = w.updates.matrix[torch.from_numpy(chosen)].mean(0)
    size = w.updates.spec.num_parameters
    mean[:size] = w.updates.origin[:size] + gamma * (mean - w.updates.origin)[:size]
    torch.testing.assert_close(result.vector, mean)


def test_nothing_filtered_is_the_uniform_mean(world):
    w = world()
    torch.testing.assert_close(Zeno()(w.updates, w.server()).vector, w.updates.matrix.mean(0))


def test_the_size_penalty_prefers_small_updates_and_may_be_a_mean(world):
    """ρ huge: only sizes matter, the client nearest to w^t wins; a mean of squares ranks the same way."""
    w = world()
    nearest = int(w.updates.deltas.norm(dim=1).argmin())
    for mean_square in (False, True):
        result = Zeno(b=3, rho=1e6, mean_square=mean_square)(w.updates, w.server())
        assert int(result.coefficients.argmax()) == nearest
    size = w.updates.spec.num_parameters
    plain, mean = (Zeno(rho=1.0, mean_square=m, batch_size=24).scores(w.updates, w.server()) for m in (False, True))
    squares = w.updates.deltas.double().square().sum(1)
    torch.testing.assert_close(mean - plain, squares * (1 - 1 / size))


def test_the_samples_are_fresh_but_decided_by_the_generator(world):
    w = world()
    first, again = (Zeno().scores(w.updates, w.server()) for _ in range(2))
    other = Zeno().scores(w.updates, w.server(generator=torch.Generator().manual_seed(8)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_huge_rows_are_filtered_even_with_b_too_small(world):
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    result = Zeno(b=0)(huge, w.server())
    torch.testing.assert_close(result.vector, w.updates.matrix.mean(0))
    assert "9" in result.events[0]
    big = Zeno(b=1)(w.with_row(9, torch.full_like(w.updates.origin, 1e30)), w.server())
    torch.testing.assert_close(big.vector, w.updates.matrix.mean(0))
    hopeless = Zeno()(w.updates.with_matrix(torch.full_like(w.updates.matrix, 3e38)), w.server())
    assert torch.equal(hopeless.vector, w.updates.origin)


def test_a_nan_row_is_as_good_as_absent_and_comes_off_b(world):
    w = world()
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    assert torch.equal(Zeno(b=2)(plus, w.server()).vector, Zeno(b=1)(w.updates, w.server()).vector)


def test_a_fraction_is_capped_and_a_number_too_large_is_refused(world):
    w = world()
    result = Zeno(fraction=1.0)(w.updates, w.server())
    assert result.info["b"] == 3
    assert "capped" in result.events[0]
    with pytest.raises(UserError, match="b = 4"):
        Zeno(b=4)(w.updates, w.server())
    assert Zeno(b=2).tolerates(10) == 2
    assert Zeno(b=20).tolerates(10) == 9
    assert Zeno(fraction=0.4).tolerates(10) == 4
    assert Zeno().tolerates(10) == 0  # nobody is left out
    for settings in ({"b": -1}, {"fraction": 1.5}):
        with pytest.raises(UserError, match=next(iter(settings))):
            Zeno(**settings)


def test_missing_labels_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="labelled"):
        Zeno()(w.updates, w.unlabelled())
    for settings in ({"gamma": 0.0}, {"rho": -1.0}, {"batch_size": 0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            Zeno(**settings)
