"""Min-Max and Min-Sum: as far from the mean as the benign clients' own spread hides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.aggregators.distances import squared_distances
from smartfl.attacks.alie import spread
from smartfl.attacks.base import Attack, Knowledge, dots, observed, send
from smartfl.types import Updates

Deviation = Literal["unit", "sign", "std"]


def deviation(rows: Tensor, kind: Deviation) -> Tensor:
    """(P,) the direction to leave the mean of ``rows`` (k, P): mean/‖mean‖, sign(mean), or the std (k − 1)."""
    mean = rows.mean(dim=0)
    if kind == "std":
        return spread(rows)
    if kind == "sign":
        return mean.sign()
    norm = float(torch.linalg.vector_norm(mean, dtype=torch.float64))
    return mean / norm if norm > 0 else mean


def largest(square: Tensor, slope: Tensor, curvature: float, bound: Tensor) -> float:
    """The largest γ ≥ 0 with square + 2γ·slope + γ²·curvature ≤ bound in every entry; 0 if the curvature is 0."""
    if curvature <= 0:
        return 0.0
    room = (bound - square).clamp_min(0)
    return max(0.0, float(((-slope + (slope**2 + curvature * room).sqrt()) / curvature).min()))


def offsets(rows: Tensor, dev: Tensor) -> tuple[Tensor, Tensor, float]:
    """What ‖mean − γ·dev − Δ_i‖² is made of: ‖mean − Δ_i‖² (k,), ⟨Δ_i − mean, dev⟩ (k,), ‖dev‖²; all float64."""
    away = rows - rows.mean(dim=0)
    square = torch.linalg.vector_norm(away, dim=1, dtype=torch.float64) ** 2
    slope = dots(away, dev)
    return square, slope, float(torch.linalg.vector_norm(dev, dtype=torch.float64)) ** 2


def min_max_gamma(rows: Tensor, dev: Tensor) -> float:
    """The largest γ with max_i ‖mean − γ·dev − Δ_i‖² ≤ max_{i,j} ‖Δ_i − Δ_j‖²."""
    square, slope, curvature = offsets(rows, dev)
    return largest(square, slope, curvature, squared_distances(rows).max())


def min_sum_gamma(rows: Tensor, dev: Tensor, bound: Literal["min", "max"] = "min") -> float:
    """The largest γ with Σ_i ‖mean − γ·dev − Δ_i‖² ≤ min (or max) over j of Σ_i ‖Δ_j − Δ_i‖²."""
    square, slope, curvature = offsets(rows, dev)
    sums = squared_distances(rows).sum(dim=1)
    limit = sums.min() if bound == "min" else sums.max()
    return largest(square.sum(), slope.sum(), len(rows) * curvature, limit)


@dataclass(frozen=True)
class MinMax(Attack):
    """Every compromised client reports w^t + mean − γ·dev, no further from any benign one than two of those are.

        γ = max{γ : max_i ‖mean − γ·dev − Δ_i‖² ≤ max_{i,j} ‖Δ_i − Δ_j‖²}

    Shejwalkar & Houmansadr 2021 (NDSS).  The condition is quadratic in γ, so γ is its exact root; the released
    code halves steps from γ = 10 and stops within 1e-5.  Without a benign client the attackers' own updates stand in.
    """

    deviation: Deviation = "unit"

    def gamma(self, rows: Tensor, dev: Tensor) -> float:
        """How far to go along −``dev`` (P,) given the benign updates ``rows`` (k, P)."""
        return min_max_gamma(rows, dev)

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        dev = deviation(known, self.deviation)
        return send(updates, malicious, known.mean(dim=0) - self.gamma(known, dev) * dev)


@dataclass(frozen=True)
class MinSum(MinMax):
    """Min-Max with sums: γ = max{γ : Σ_i ‖mean − γ·dev − Δ_i‖² ≤ bound}, bound = min or max over j of Σ_i ‖Δ_j − Δ_i‖².

    The paper bounds by the max, the released code by the min, which is the default here.
    """

    bound: Literal["min", "max"] = "min"

    def gamma(self, rows: Tensor, dev: Tensor) -> float:
        return min_sum_gamma(rows, dev, self.bound)
