"""Divide and conquer: clients that stand out along the direction of largest spread are left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count, weighted
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates

HUGE = 1e300  # the difference of larger float64 values may be Inf


def spectral_scores(rows: Tensor) -> Tensor:
    """(n,) float64 s_i = ⟨v_i − μ, v⟩², v the top right singular vector of the centred ``rows`` (n, b)."""
    centred = rows.to(torch.float64).clamp(-HUGE, HUGE)
    # Around the first row: equal rows then give exactly 0 and not the rounding of their mean.
    centred = centred - centred[0]
    centred = centred - centred.mean(dim=0)
    scale = centred.abs().max()
    if scale == 0:
        return torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    centred = centred / scale
    # The (n, n) Gram matrix has the same singular values as the (n, b) rows and is far smaller.
    left = torch.linalg.eigh(centred @ centred.T).eigenvectors[:, -1]
    direction = left @ centred
    direction = direction / torch.linalg.vector_norm(direction)
    scores: Tensor = (centred @ direction * scale.clamp_max(HUGE**0.5)).square()  # a common factor: the order stays
    return scores


@dataclass(frozen=True)
class DnC(Aggregator):
    """The mean of the clients that pass ``repeats`` spectral filters, each on a random subset of the coordinates:

        s_i = ⟨w_i − μ, v⟩²,   keep the n − ⌊c f⌋ smallest;   the final set is the intersection

    with v the top right singular vector of the centred subset. Shejwalkar & Houmansadr 2021, "Manipulating the
    Byzantine". ``subset`` coordinates (all if there are fewer) are drawn from the server's generator. An empty
    intersection falls back to the last filter's set, with an event. Buffers: uniform over the kept clients.
    Needs f < n/2; ``f`` is given, or round(fraction · n) capped at ⌈n/2⌉ − 1. O(repeats · n² · subset + n d).
    """

    f: int | None = None
    fraction: float | None = None
    subset: int = 10_000
    repeats: int = 5
    c: float = 1.0

    def __post_init__(self) -> None:
        check_assumption("f", self.f, self.fraction)
        if self.subset < 1 or self.repeats < 1:
            raise UserError(f"subset = {self.subset} and repeats = {self.repeats} must be 1 or more")
        if not self.c >= 0:
            raise UserError(f"c = {self.c:g} must be 0 or more")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n = len(updates)
        f, events = byzantine_count("f", self.f, self.fraction, updates, (n - 1) // 2)
        keep = n - int(self.c * f)
        if keep < 1:
            events += (f"c·f = {self.c * f:g} would leave none of {n} clients: 1 is kept",)
            keep = 1
        generator = (server or Server()).generator
        kept, last = set(range(n)), set(range(n))
        for _ in range(self.repeats):
            rows = _random_columns(updates.parameters, self.subset, generator)
            last = set(spectral_scores(rows).argsort(stable=True)[:keep].tolist())
            kept &= last
        if not kept:
            events += ("the filters left no common client: the last filter's set is averaged",)
            kept = last
        p = torch.zeros_like(updates.num_examples)
        p[sorted(kept)] = 1 / len(kept)
        result = weighted(updates, p, f=f, kept=len(kept))
        return Aggregate(result.vector, p, result.info, events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.f, self.fraction, n, (n - 1) // 2)


def _random_columns(rows: Tensor, size: int, generator: torch.Generator) -> Tensor:
    if size >= rows.shape[1]:
        return rows
    columns = torch.randperm(rows.shape[1], generator=generator, device=generator.device)[:size]
    return rows[:, columns.to(rows.device)]
