"""Multi-Krum: the mean of the clients nearest to their neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.distances import squared_distances
from smartfl.aggregators.krum import krum_assumption, krum_scores
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class MultiKrum(Aggregator):
    """The unweighted mean of the q clients with the lowest Krum scores; ties go to the smallest ids.

    Blanchard et al. 2017. Needs n ≥ 2f + 3. q = n − f unless given; q = 1 is Krum, q = n the uniform mean. Buffers
    are averaged over the same q clients. If fewer than q clients are left, all of them are averaged. O(n² d).
    """

    f: int | None = None
    fraction: float | None = None
    q: int | None = None

    def __post_init__(self) -> None:
        check_assumption("f", self.f, self.fraction)
        if self.q is not None and self.q < 1:
            raise UserError(f"q = {self.q} must be 1 or more")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n = len(updates)
        f, events = krum_assumption(self.f, self.fraction, updates)
        q = n - f if self.q is None else self.q
        if q > n:
            if not updates.short:
                raise UserError(f"q = {q} is too large for {n} clients: at most {n}")
            events += (f"q = {q} capped to {n}: {n} clients were left",)
            q = n
        scores = krum_scores(squared_distances(updates.parameters), f)
        selected = scores.argsort(stable=True)[:q]
        p = torch.zeros_like(updates.num_examples)
        p[selected] = 1 / q
        result = weighted(updates, p, f=f, q=q)
        return Aggregate(result.vector, p, result.info, events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.f, self.fraction, n, (n - 3) // 2)
