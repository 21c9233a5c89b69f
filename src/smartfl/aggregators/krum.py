"""Krum: the client nearest to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count
from smartfl.aggregators.distances import squared_distances
from smartfl.types import Aggregate, Server, Updates


def krum_scores(distances: Tensor, f: int) -> Tensor:
    """(n,) score_i = Σ of the k = n − f − 2 smallest squared distances from i to *other* clients, k at least 1."""
    n = len(distances)
    if n == 1:
        return distances.new_zeros(1)
    others = distances.clone()
    others.fill_diagonal_(torch.inf)
    k = max(1, n - f - 2)
    return others.sort(dim=1).values[:, :k].sum(dim=1)


def krum_assumption(given: int | None, fraction: float | None, updates: Updates) -> tuple[int, tuple[str, ...]]:
    """f for these rows, n ≥ 2f + 3; with fewer than three rows f = 0 and every row's nearest neighbour decides."""
    n = len(updates)
    f, events = byzantine_count("f", given, fraction, updates, max(0, (n - 3) // 2))
    if n < 3:
        events += (f"Krum's scores need 3 clients, {n} left: the nearest neighbour decides",)
    return f, events


@dataclass(frozen=True)
class Krum(Aggregator):
    """The one client with the lowest score; ties go to the smallest id.

        score_i = Σ_{j ∈ N_i} ‖w_i − w_j‖²,   N_i the k = n − f − 2 nearest other clients

    Blanchard et al. 2017, "Machine learning with adversaries". Needs n ≥ 2f + 3. Distances see trainable
    parameters only; the chosen client's buffers come with it. ``f`` is given, or round(fraction · n) capped at
    ⌊(n − 3)/2⌋. O(n² d).
    """

    f: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_assumption("f", self.f, self.fraction)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        f, events = krum_assumption(self.f, self.fraction, updates)
        scores = krum_scores(squared_distances(updates.parameters), f)
        best = int(scores.argmin())
        p = torch.zeros_like(updates.num_examples)
        p[best] = 1
        info = {"f": f, "score": float(scores[best])}
        return Aggregate(updates.matrix[best].clone(), p, info, events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.f, self.fraction, n, (n - 3) // 2)
