"""The price of weights: how many nats it takes to describe them."""

from __future__ import annotations

import torch
from torch import Tensor


def description_length(p: Tensor, prior: Tensor) -> tuple[float, Tensor]:
    """D(p) and its gradient, up to a constant in every row, for weights ``p``, (n,) or (L, n), and ``prior`` (n,) π.

    One row:   D = KL(p ‖ π),                            ∂D/∂p = ln(p/π)
    L rows:    D = KL(p̄ ‖ π) + Σ_l KL(p_l ‖ p̄),          ∂D/∂p_l = ln(p_l/p̄) + ln(p̄/π) / L,     p̄ = Σ_l p_l / L

    Rows that move together cost as much as one row does, so parts share what the samples do not tell apart.  p̄ is the
    best centre, so the second sum has no derivative through it.  0 ln 0 = 0.
    """
    rows = p.view(-1, p.shape[-1])
    centre = rows.mean(dim=0)
    common, own = _log_ratio(centre, prior), _log_ratio(rows, centre)
    value = float((centre * common).sum() + (rows * own).sum())
    return value, (own + common / len(rows)).view_as(p)


def _log_ratio(p: Tensor, q: Tensor) -> Tensor:
    """ln(p/q), 0 where p is 0."""
    return torch.where(p > 0, (p / q).log(), 0.0)
