"""Updates made shorter: rows moved towards the global model until they are no longer than a limit."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.blocks import for_blocks
from smartfl.aggregators.columns import middle
from smartfl.aggregators.distances import distances_to
from smartfl.products import arithmetic
from smartfl.types import Updates

HUGE = 1e37  # the difference to a row of this length may be no float32


def clip_factors(norms: Tensor, threshold: float | None) -> tuple[Tensor, float]:
    """(n,) min(1, M/‖Δ_i‖) and M: ``threshold``, or the median of ``norms`` (n,) where it is None."""
    limit = float(middle(norms[:, None])) if threshold is None else threshold
    return torch.where(norms > limit, limit / norms, torch.ones_like(norms)), limit


def shortened(updates: Updates, norms: Tensor, factors: Tensor) -> Updates:
    """w^t + Δ_i · ``factors`` (n,); ``norms`` (n,) are the ‖Δ_i‖, over the trainable parameters; buffers stay.

    One more (n, d) matrix if any factor is below 1.
    """
    if not (factors < 1).any():
        return updates
    size = updates.spec.num_parameters
    start, matrix = updates.origin[:size], torch.empty_like(updates.matrix)
    wide = arithmetic(matrix.dtype)

    def shorten(client: slice) -> None:
        row, out, factor = (each[client.start] for each in (updates.matrix, matrix, factors))
        if factor == 1:
            out.copy_(row)
            return
        out[size:] = row[size:]
        if norms[client.start] > HUGE or wide != matrix.dtype:
            exact = torch.float64 if norms[client.start] > HUGE else wide
            out[:size] = (row[:size].to(exact) - start) * factor + start
        else:
            torch.sub(row[:size], start, out=out[:size]).mul_(factor).add_(start)

    for_blocks(shorten, len(updates), block=1)
    return updates.with_matrix(matrix)


def within_reach(updates: Updates, reach: float) -> tuple[Updates, int]:
    """No update longer than ``reach`` times the median one, and how many were."""
    norms = distances_to(updates.parameters, updates.origin[: updates.spec.num_parameters])
    limit = reach * float(middle(norms[:, None]))
    if not limit > 0:
        return updates, 0
    factors, _ = clip_factors(norms, limit)
    return shortened(updates, norms, factors), int((factors < 1).sum())
