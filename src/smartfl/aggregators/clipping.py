"""Clipping: a rule on updates that are no longer than M."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.blocks import columns_at_once, for_blocks
from smartfl.aggregators.distances import distances_to
from smartfl.aggregators.norm_clipping import clip_factors
from smartfl.aggregators.wrapper import Wrapper
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


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
        factors, limit = clip_factors(distances_to(updates.parameters, start), self.threshold)
        clipped = factors < 1
        if clipped.any():
            rows, matrix = updates.matrix, torch.empty_like(updates.matrix)
            matrix[:, size:] = rows[:, size:]

            def shorten(part: slice) -> None:
                centre = start[part].to(torch.float64)
                shorter = (rows[:, part] - centre).mul_(factors[:, None]).add_(centre).to(rows.dtype)
                torch.where(clipped[:, None], shorter, rows[:, part], out=matrix[:, part])

            for_blocks(shorten, size, columns_at_once(len(rows)))
            updates = updates.with_matrix(matrix)
        result = self.rule(updates, server)
        return replace(result, info={**result.info, "threshold": limit, "clipped": int(clipped.sum())})
