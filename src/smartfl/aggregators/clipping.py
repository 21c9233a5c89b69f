"""Clipping: a rule on updates that are no longer than M."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.distances import distances_to
from smartfl.aggregators.shortening import clip_factors, shortened
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
        norms = distances_to(updates.parameters, updates.origin[: updates.spec.num_parameters])
        factors, limit = clip_factors(norms, self.threshold)
        result = self.rule(shortened(updates, norms, factors), server)
        return replace(result, info={**result.info, "threshold": limit, "clipped": int((factors < 1).sum())})
