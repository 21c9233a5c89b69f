"""How far to step, and how much of the last step to take again."""

from __future__ import annotations

import math

import pytest

from smartfl.aggregators.smartfl_next.length import best_length, best_repetition


def asked(best: float) -> tuple[float, list[float]]:
    """The length found for a loss that is least at ``best``, and the lengths at which it was asked."""
    seen: list[float] = []

    def loss_at(length: float) -> float:
        seen.append(length)
        return abs(math.log(length / best))

    return best_length(loss_at)[0], seen


@pytest.mark.parametrize(("best", "found"), [(1.0, 1.0), (2.1, 2.0), (0.45, 0.5), (100.0, 16.0), (1e-3, 1 / 16)])
def test_it_walks_until_the_loss_rises(best: float, found: float):
    assert asked(best)[0] == pytest.approx(found)


def test_it_asks_no_further_than_it_must():
    assert asked(2.1)[1] == pytest.approx([1, math.sqrt(2), 2, 2 * math.sqrt(2)])
    assert asked(1.0)[1] == pytest.approx([1, math.sqrt(2), 1 / math.sqrt(2)])


def test_a_loss_that_overflows_ends_the_walk():
    assert best_length(lambda x: -x if x < 3 else math.inf)[0] == pytest.approx(2 * math.sqrt(2))
    assert best_length(lambda x: math.inf)[0] == 1.0


def test_repetition_is_the_best_of_four():
    assert best_repetition(lambda beta: (beta - 0.45) ** 2, 0.45**2) == 0.5
    assert best_repetition(lambda beta: beta, 0.0) == 0.0
    assert best_repetition(lambda beta: -beta, 0.0) == 0.75
