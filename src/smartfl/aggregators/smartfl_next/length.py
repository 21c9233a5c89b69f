"""How far to step, and how much of the last step to take again: two searches along a line."""

from __future__ import annotations

import math
from collections.abc import Callable

LossAt = Callable[[float], float]

LONGEST = 16.0  # a client that makes one small step a round is worth many; beyond this nothing was gained
SHORTEST = 1 / 16


def best_length(loss_at: LossAt, ratio: float = math.sqrt(2)) -> tuple[float, float]:
    """(γ, loss) of the length γ before the loss rises: 1, r, r², … ≤ 16, or if r is no better 1/r, 1/r², … ≥ 1/16."""
    best, lowest = 1.0, loss_at(1.0)
    for factor in (ratio, 1 / ratio):
        while SHORTEST * 0.99 < best * factor < LONGEST * 1.01 and (value := loss_at(best * factor)) < lowest:
            best, lowest = best * factor, value
        if best != 1.0:
            break
    return best, lowest


def best_repetition(loss_at: LossAt, lowest: float) -> float:
    """β of 0, ¼, ½ and ¾ with the lowest loss; ``lowest`` is that of 0."""
    best = 0.0
    for beta in (0.25, 0.5, 0.75):
        if (value := loss_at(beta)) < lowest:
            best, lowest = beta, value
    return best
