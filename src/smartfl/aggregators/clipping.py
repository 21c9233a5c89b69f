"""Clipping: a rule on updates that are no longer than M."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.blocks import for_blocks
from smartfl.aggregators.distances import distances_to
from smartfl.aggregators.norm_clipping import clip_factors
from smartfl.aggregators.wrapper import Wrapper
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates

HUGE = 1e37  # the difference to a row of this length may be no float32


@dataclass(frozen=True)
class Clipping(Wrapper):
    """``rule`` on w^t + Δ_i · min(1, M/‖Δ_i‖), M = ``threshold`` or, where none is given, the median norm.

    The norm is that of the trainable parameters; buffers pass unclipped. ``Clipping(FedAvg())`` is norm clipping.
    Coefficients, state and the number of attackers are the inner rule's. O(n d) besides the rule, and one more
    (n, d) matrix if anything was clipped.
    """

    rule: Aggregator
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and not self.threshold > 0:
            raise UserError(f"threshold = {self.threshold:g} must be above 0, or left out for the median norm")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        size = updates.spec.num_parameters
        start = updates.origin[:size]
        norms = distances_to(updates.parameters, start)
        factors, limit = clip_factors(norms, self.threshold)
        clipped = factors < 1
        if clipped.any():
            matrix = torch.empty_like(updates.matrix)

            def shorten(client: slice) -> None:
                row, out, factor = (each[client.start] for each in (updates.matrix, matrix, factors))
                if factor == 1:
                    out.copy_(row)
                    return
                out[size:] = row[size:]
                if norms[client.start] > HUGE:
                    out[:size] = (row[:size].to(torch.float64) - start) * factor + start
                else:
                    torch.sub(row[:size], start, out=out[:size]).mul_(factor).add_(start)

            for_blocks(shorten, len(updates), block=1)
            updates = updates.with_matrix(matrix)
        result = self.rule(updates, server)
        return replace(result, info={**result.info, "threshold": limit, "clipped": int(clipped.sum())})
