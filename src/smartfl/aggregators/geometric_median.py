"""Geometric median (RFA): the point with the smallest sum of distances to the clients."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.distances import distances_in_hull, gram_amid
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    """argmin_z Σ α_i ‖z − w_i‖ by smoothed Weiszfeld steps from the mean:

        β_i = α_i / max(ν, ‖z − w_i‖),   z ← Σ β_i w_i / Σ β_i

    Pillutla, Kakade & Harchaoui 2019, "Robust aggregation for federated learning" (their R = 3 is ``iterations=3``).
    It stops after ``iterations`` steps, or when no distance ‖z − w_i‖ changed by more than ``tolerance`` of itself. The
    objective would not do: with one row of 1e30 it stands still while z comes back by about a factor of n a step.
    α is uniform, or the reported sample counts with ``weighted``: an attacker may inflate those. Valid while the bad
    clients hold less than half of α. Buffers take the final β/Σβ, which are the coefficients. z stays in the clients'
    hull, so one Gram product gives the distances of every step: O(n² d), then O(n²) a step.
    """

    iterations: int = 100
    smoothing: float = 1e-6
    tolerance: float = 1e-4
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise UserError(f"iterations = {self.iterations} must be 1 or more")
        if not self.smoothing > 0:
            raise UserError(f"smoothing = {self.smoothing:g} must be above 0")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        uniform = torch.full_like(updates.num_examples, 1 / len(updates))
        alpha = updates.weights if self.weighted else uniform
        gram = gram_amid(updates.parameters)
        p, before, steps = alpha, torch.full_like(alpha, torch.inf), 0
        for _ in range(self.iterations):
            distances = distances_in_hull(gram, p).clamp_min(self.smoothing)
            if ((distances - before).abs() <= self.tolerance * distances).all():
                break
            before = distances
            beta = alpha / distances
            p = beta / beta.sum()
            steps += 1
        return weighted(updates, p, iterations=steps)

    def tolerates(self, n: int) -> int | None:
        return (n - 1) // 2
