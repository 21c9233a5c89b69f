"""IDA: clients count by the inverse of their distance to the average."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.distances import distances_to, mix_differences
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class IDA(Aggregator):
    """w ← Σ p_i w_i with p_i ∝ 1/‖w̄ − w_i‖₁ and w̄ the uniform mean.

    Yeganeh et al. 2020, "Inverse distance aggregation for federated learning with non-IID data". Ignores sample
    counts. A distance below 1e-12 of the largest counts as that much: clients on the mean itself share the weight,
    and equal clients count alike. Against attackers nothing is proved: they move w̄ as well. O(n d).
    """

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        rows = updates.parameters
        uniform = torch.full_like(updates.num_examples, 1 / len(updates))
        # Around the first row: equal rows then lie at distance 0 and not at the rounding of their mean.
        mean = rows[0] + mix_differences(rows, rows[0], uniform)
        distances = distances_to(rows, mean, order=1)
        farthest = distances.max()
        if farthest == 0:
            return weighted(updates, uniform, farthest=0.0)
        closeness = 1 / distances.clamp_min(1e-12 * float(farthest))
        return weighted(updates, closeness / closeness.sum(), farthest=float(farthest))

    def tolerates(self, n: int) -> int | None:
        return None
