"""Euclidean projection onto the probability simplex Λ = {p ≥ 0, Σp = 1}."""

from __future__ import annotations

import torch
from torch import Tensor


def project_simplex(v: Tensor) -> Tensor:
    """The point of the simplex nearest to ``v`` (n,), in float64.

    With u = sort(v, descending) and c_k = u_1 + … + u_k,

        ρ = max{k : u_k − (c_k − 1)/k > 0},   θ = (c_ρ − 1)/ρ,   Π(v)_i = max(v_i − θ, 0).

    Duchi et al. 2008; Wang & Carreira-Perpiñán, arXiv 1309.1541. O(n log n).
    Raises ValueError on an empty or non-finite vector: garbage must not become weights.
    """
    if v.ndim != 1 or v.numel() == 0:
        raise ValueError(f"project_simplex takes a non-empty vector, got shape {tuple(v.shape)}")
    return project_rows(v)


def project_rows(v: Tensor) -> Tensor:
    """``project_simplex`` of ``v`` (n,), or of every row of ``v`` (L, n) at once."""
    if not torch.isfinite(v).all():
        raise ValueError("project_simplex takes finite values, got NaN or Inf")
    x = v.to(torch.float64)
    # The projection ignores a common shift; this one avoids cancellation for large |v|.
    x = x - x.amax(dim=-1, keepdim=True)
    u = x.sort(dim=-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=torch.float64, device=x.device)
    theta = (u.cumsum(dim=-1) - 1) / k
    rho = (u - theta > 0).sum(dim=-1, keepdim=True) - 1  # the condition holds on a prefix: its count is the last index
    p = (x - theta.gather(-1, rho)).clamp_min(0)
    return p / p.sum(dim=-1, keepdim=True)
