"""Residual-based reweighting: clients that stray from the line through each coordinate's ranked values count less."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.columns import ascending
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates

BLOCK = 1024


@dataclass(frozen=True)
class ResidualReweighting(Aggregator):
    """The average of line-corrected values with weights from iteratively reweighted least squares:

        line    per coordinate, value ≈ intercept + slope · rank by repeated-median regression (Siegel 1982),
                the line passing through the median value at the median rank
        scale   τ = 1.4826 (1 + 5/(n − 1)) · median(|r| without the smallest) + 1e-7
        weight  u = min(1, K h/|e|) with e = r/τ, K = λ √(2/n), h = √(1 − H_ii) of the design (1, rank)
        client  Σ over coordinates of u · std(u), divided by the largest, squared, normalised

    A value with u < ``threshold`` is replaced by the line's. Fu et al. 2019, "Attack-resistant federated learning with
    residual-based reweighting". Ignores sample counts. The repeated median breaks down at half of the clients. Equal
    values of a coordinate are ranked by client id. Where every weight is 0 (all clients equal), the mean is uniform.
    With fewer than 3 clients there is no line to stray from: uniform mean, with an event. Buffers take the client
    weights, which are the coefficients; the correction is for parameters only. O(d n²).
    """

    lam: float = 2.0
    threshold: float = 0.1

    def __post_init__(self) -> None:
        if not self.lam > 0:
            raise UserError(f"lam = {self.lam:g} must be above 0")
        if not 0 <= self.threshold <= 1:
            raise UserError(f"threshold = {self.threshold:g} must be between 0 and 1")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n, rows = len(updates), updates.parameters
        uniform = torch.full_like(updates.num_examples, 1 / n)
        if n < 3:
            event = f"residual reweighting needs 3 clients, {n} left: the uniform mean is taken"
            return Aggregate(updates.mix(uniform), uniform, events=(event,))
        total = torch.zeros_like(uniform)
        middle, slope = (torch.empty(rows.shape[1], dtype=torch.float64, device=rows.device) for _ in range(2))
        for start in range(0, rows.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            values = rows[:, part].T.to(torch.float64)
            middle[part], slope[part] = repeated_median(values)
            u, _ = self._confidence(values, middle[part], slope[part])
            total += (u * u.std(dim=1, keepdim=True)).sum(dim=0)
        p = uniform if total.max() <= 0 else (total / total.max()).square()
        p = p / p.sum()
        vector = updates.mix(p)
        parameters = vector[: rows.shape[1]]
        corrected = 0
        # The weights are known only now: a second pass is cheaper than an (n, d) copy of the corrected values.
        for start in range(0, rows.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            values = rows[:, part].T.to(torch.float64)
            u, line = self._confidence(values, middle[part], slope[part])
            corrected += int((u < self.threshold).sum())
            parameters[part] = (torch.where(u < self.threshold, line, values) @ p).to(vector.dtype)
        return Aggregate(vector, p, {"corrected": corrected / max(1, rows.numel())})

    def _confidence(self, values: Tensor, middle: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """u and the line at every value's rank, both (k, n), for ``values`` (k, n)."""
        n = values.shape[1]
        rank = values.argsort(dim=1, stable=True).argsort(dim=1).to(torch.float64) - (n - 1) / 2
        line = middle[:, None] + slope[:, None] * rank
        residual = (values - line).abs()
        tau = 1.4826 * (1 + 5 / (n - 1)) * _median(ascending(residual.T)[:, 1:]) + 1e-7
        # H_ii of a line through equally spaced ranks: 1/n + rank²/Σrank², Σrank² = n(n² − 1)/12.
        leverage = (1 - 1 / n - rank.square() * 12 / (n * (n * n - 1))).clamp_min(0).sqrt()
        allowed = self.lam * math.sqrt(2 / n) * leverage * tau[:, None]
        return torch.where(residual > allowed, allowed / residual, 1.0), line

    def tolerates(self, n: int) -> int | None:
        return (n - 1) // 2


def repeated_median(values: Tensor) -> tuple[Tensor, Tensor]:
    """(k,) median value and (k,) slope med_i med_{j≠i} (y_j − y_i)/(j − i) over the ranked ``values`` (k, n)."""
    ordered = ascending(values.T)
    n = ordered.shape[1]
    slopes = torch.empty_like(ordered)
    rank = torch.arange(n, dtype=torch.float64, device=values.device)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        slopes[:, i] = _median(ascending(((ordered[:, others] - ordered[:, i : i + 1]) / (rank[others] - i)).T))
    return _median(ordered), _median(ascending(slopes.T))


def _median(ordered: Tensor) -> Tensor:
    n = ordered.shape[1]
    low, high = ordered[:, (n - 1) // 2], ordered[:, n // 2]
    return low + (high - low) / 2
