"""ALGORITHMS.md 1.4: what the optimiser makes of the gradient, step by step."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.simplex_descent import SteadyAdam, descend
from smartfl.optimizers import FlatAdam, FlatSGD
from smartfl.simplex import project_simplex


def constant(*g):
    """A loss with the same gradient everywhere."""
    gradient = torch.tensor(g, dtype=torch.float64)
    return lambda p, index: (float(gradient @ p), gradient.clone())


def steps(count, epochs=1):
    return [[torch.zeros(1, dtype=torch.int64)] * count for _ in range(epochs)]


def start(*p):
    return torch.tensor(p, dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_raw_adam_takes_every_step_back(count):
    """g = (5.1, 4.9): Adam moves both coordinates by −lr and the projection undoes it."""
    found = descend(start(0.5, 0.5), constant(5.1, 4.9), steps(count), FlatAdam(0.01), centre=False)
    assert found.p.tolist() == pytest.approx([0.5, 0.5], abs=1e-9)
    assert found.steps == count


def test_centred_adam_moves_by_its_learning_rate():
    """g − mean = (0.1, −0.1): (0.49, 0.51), (0.48, 0.52), (0.47, 0.53)."""
    for count in (1, 2, 3):
        found = descend(start(0.5, 0.5), constant(5.1, 4.9), steps(count), FlatAdam(0.01), centre=True)
        assert found.p.tolist() == pytest.approx([0.5 - 0.01 * count, 0.5 + 0.01 * count], abs=1e-6)


def test_three_clients_one_raw_adam_step():
    """Steps −0.01·sign(g) give (0.49, 0.26, 0.24); the projection adds (1 − 0.99)/3 to each."""
    found = descend(start(0.5, 0.25, 0.25), constant(1.0, -1.0, 2.0), steps(1), FlatAdam(0.01), centre=False)
    assert found.p.tolist() == pytest.approx([0.493333, 0.263333, 0.243333], abs=1e-6)


@pytest.mark.parametrize("shift", [0.0, 7.0])
@pytest.mark.parametrize("centre", [False, True])
def test_sgd_does_not_see_a_common_shift(shift, centre):
    """(0.5, 0.25, 0.25) − 0.1·(1, −1, 2) = (0.4, 0.35, 0.05), plus 0.2/3 each, whatever is added to all of g."""
    g = constant(1 + shift, -1 + shift, 2 + shift)
    found = descend(start(0.5, 0.25, 0.25), g, steps(1), FlatSGD(0.1), centre=centre)
    assert found.p.tolist() == pytest.approx([0.466667, 0.416667, 0.116667], abs=1e-6)


def test_every_iterate_lies_on_the_simplex():
    generator = torch.Generator().manual_seed(0)
    seen = []

    def noisy(p, index):
        seen.append(p.clone())
        return 0.0, 10 * torch.randn(5, generator=generator, dtype=torch.float64)

    found = descend(torch.full((5,), 0.2, dtype=torch.float64), noisy, steps(60), FlatAdam(0.1), centre=True)
    for p in [*seen, found.p]:
        assert float(p.min()) >= 0
        assert abs(float(p.sum()) - 1) <= 1e-9


def test_decay_shrinks_the_step_over_the_second_half():
    """Four epochs of one step: full steps of 0.01 in the first two, then 2/2 and 1/2 of it: 0.035 in all."""
    found = descend(start(0.5, 0.5), constant(1.0, -1.0), steps(1, epochs=4), FlatAdam(0.01), centre=True, decay=True)
    assert found.p.tolist() == pytest.approx([0.465, 0.535], abs=1e-3)


def test_each_epoch_sees_the_current_weights():
    seen = []
    gradient = constant(1.0, -1.0)
    descend(
        start(0.5, 0.5),
        gradient,
        steps(2, epochs=2),
        FlatAdam(0.01),
        True,
        each_epoch=lambda p: seen.append(p.tolist()),
    )
    assert seen == [pytest.approx([0.5, 0.5]), pytest.approx([0.48, 0.52], abs=1e-6)]


def test_no_steps_return_the_start_as_a_copy():
    p = start(0.3, 0.7)
    found = descend(p, constant(1.0, 0.0), steps(0), FlatAdam(0.01), centre=True)
    assert (found.p.tolist(), found.steps) == ([0.3, 0.7], 0)
    assert found.p.data_ptr() != p.data_ptr()


def scripted(*values):
    """Losses in turn; None stands for a gradient that is not finite."""
    queue = list(values)

    def gradient(p, index):
        value = queue.pop(0)
        bad = value is None
        return (float("nan") if bad else value), torch.tensor([torch.nan if bad else 1.0, -1.0], dtype=torch.float64)

    return gradient


def test_a_gradient_that_is_not_finite_is_skipped():
    found = descend(start(0.5, 0.5), scripted(3.0, None, None, 2.0), steps(4), FlatAdam(0.01), centre=True)
    assert (found.steps, found.events) == (2, ())
    assert found.p.tolist() == pytest.approx([0.48, 0.52], abs=1e-6)


def test_three_in_a_row_end_the_search_at_the_best_weights_so_far():
    """Losses 3, 1, 2 at 0.5, 0.49, 0.48, then three bad gradients: the best is 0.49."""
    found = descend(
        start(0.5, 0.5), scripted(3.0, 1.0, 2.0, None, None, None, 0.0), steps(7), FlatAdam(0.01), centre=True
    )
    assert found.p.tolist() == pytest.approx([0.49, 0.51], abs=1e-6)
    assert found.steps == 3
    assert found.events == ("3 non-finite gradients in a row: the best weights so far",)


def test_without_one_finite_gradient_the_start_is_returned():
    found = descend(start(0.25, 0.75), scripted(None, None, None), steps(3), FlatAdam(0.01), centre=True)
    assert found.p.tolist() == [0.25, 0.75]


def test_steady_adam_by_hand():
    """First step: m̂ = g, √v̂ = |g| = 1, 4, 16; with p = (½, ¼, ¼) the floor is ½ + 1 + 4 = 5.5."""
    p = start(0.5, 0.25, 0.25)
    SteadyAdam(0.1).step(p, start(1.0, -4.0, 16.0))
    assert p.tolist() == pytest.approx([0.5 - 0.1 / 5.5, 0.25 + 0.4 / 5.5, 0.25 - 0.1])


def test_steady_adam_is_adam_where_all_gradients_are_of_one_size():
    torch.manual_seed(0)
    signs = torch.randn(30, 5, dtype=torch.float64).sign()
    ours, theirs = (torch.full((5,), 0.2, dtype=torch.float64) for _ in range(2))
    steady, adam = SteadyAdam(0.01), FlatAdam(0.01)
    for g in signs:
        steady.step(ours, 3 * g)
        adam.step(theirs, 3 * g)
        ours, theirs = project_simplex(ours), project_simplex(theirs)
    assert ours.tolist() == pytest.approx(theirs.tolist(), abs=1e-8)


def test_steady_adam_stands_still_without_a_gradient():
    w = start(0.25, 0.75)
    SteadyAdam(0.1).step(w, torch.zeros(2, dtype=torch.float64))
    assert w.tolist() == [0.25, 0.75]


def test_one_huge_gradient_does_not_make_all_others_step_alike():
    """g = (1, 1, 1, −1, −1, −1, 10⁶).  Its mean is 142857, so g − mean is −142856 or −142858 for six of seven, and Adam
    moves all six by +0.01: as before, nobody is told apart.  Its median is 1: g − median is 0, −2 and 10⁶, and one step
    of 0.01 sets the third client 0.01 behind the fourth and before the seventh; the projection shifts all alike."""
    g, seventh = (1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1e6), start(*[1 / 7] * 7)
    found = descend(seventh, constant(*g), steps(1), FlatAdam(0.01), centre=True).p
    assert float(found[3] - found[2]) == pytest.approx(0.01, abs=1e-6)
    assert float(found[2] - found[6]) == pytest.approx(0.01, abs=1e-6)
    mean = sum(g) / 7
    by_the_mean = descend(seventh, constant(*(x - mean for x in g)), steps(1), FlatAdam(0.01), centre=False).p
    assert float(by_the_mean[3] - by_the_mean[2]) == pytest.approx(0, abs=1e-6)
