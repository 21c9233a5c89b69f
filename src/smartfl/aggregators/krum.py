"""Krum: the client nearest to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, byzantine_count, weighted
from smartfl.aggregators.distances import squared_distances
from smartfl.types import Aggregate, Server, Updates


def krum_scores(distances: Tensor, f: int) -> Tensor:
    """(n,) score_i = Σ of the k = n − f − 2 smallest squared distances from i to *other* clients."""
    n = len(distances)
    others = distances.clone()
    others.fill_diagonal_(torch.inf)
    k = max(1, min(n - f - 2, n - 1))
    return others.sort(dim=1).values[:, :k].sum(dim=1)


@dataclass(frozen=True)
class Krum(Aggregator):
    """The one client with the lowest score; ties go to the smallest id.

        score_i = Σ_{j ∈ N_i} ‖w_i − w_j‖²,   N_i the k = n − f − 2 nearest other clients

    Blanchard et al. 2017. Needs n ≥ 2f + 3. Distances see trainable parameters only; the chosen client's
    buffers come with it. ``f`` is given, or round(fraction · n) capped at ⌊(n − 3)/2⌋.
    """

    f: int | None = None
    fraction: float | None = None

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n = len(updates)
        f, events = byzantine_count("f", self.f, self.fraction, updates, (n - 3) // 2)
        if n == 1:
            return weighted(updates, torch.ones(1))
        scores = krum_scores(squared_distances(updates.parameters), f)
        best = int(scores.argmin())
        p = torch.zeros(n, dtype=torch.float64)
        p[best] = 1
        info = {"f": f, "score": float(scores[best])}
        return Aggregate(updates.matrix[best].clone(), p, info, events)

    def tolerates(self, n: int) -> int | None:
        most = max(0, (n - 3) // 2)
        return most if self.f is None else min(self.f, most)
