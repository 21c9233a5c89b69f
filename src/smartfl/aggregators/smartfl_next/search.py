"""The search on the simplex: natural gradient, normalised, with momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.errors import UserError

Gradient = Callable[[Tensor, Tensor], Tensor]
"""Maps weights p, (n,) or (L, n), and the index of a mini-batch to ∂/∂p of the objective."""


@dataclass(frozen=True)
class NaturalGradient:
    """p = softmax(ln π + θ) in every row, θ moved against the gradient in the Fisher metric of the simplex.

        g ← g − p·g                               what all clients share changes nothing
        m ← μ m + (1 − μ) g
        θ ← θ − η_k m / √(Σ_i p_i m_i²)           η_k = rate · (1 − k/K), k = 0 … K − 1

    For p on the simplex the natural gradient in θ is g − p·g itself (Amari 1998), and √(Σ p g²) its length, so a step
    has the length η_k whatever the units of the loss are.  ``batches`` yields K mini-batches.
    """

    rate: float = 0.5
    momentum: float = 0.5

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise UserError(f"rate = {self.rate} must be above 0")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum = {self.momentum} must be at least 0 and below 1")

    def __call__(self, start: Tensor, gradient: Gradient, batches: Iterable[Tensor], steps: int) -> Tensor:
        """The weights after ``steps`` steps from ``start``; a gradient that is not finite is left out."""
        origin = start.log()
        theta, mean, p = torch.zeros_like(start), torch.zeros_like(start), start
        for k, index in zip(range(steps), batches, strict=False):
            g = gradient(p, index)
            if not torch.isfinite(g).all():
                continue
            mean = self.momentum * mean + (1 - self.momentum) * (g - row_dots(p, g))
            step = mean - row_dots(p, mean)
            length = row_dots(p, step.square()).sqrt()
            theta = theta - self.rate * (1 - k / steps) * step / length.clamp_min(1e-30)
            p = torch.softmax(origin + theta, dim=-1)
        return p


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """(…, 1) the inner products of the rows of ``a`` and ``b``."""
    return (a * b).sum(dim=-1, keepdim=True)
