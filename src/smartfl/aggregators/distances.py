"""Distances between clients and to a centre, exact enough to rank them, without an (n, d) temporary."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

BLOCK = 4096


def squared_distances(rows: Tensor) -> Tensor:
    """(n, n) float64 matrix of ‖v_i − v_j‖² for ``rows`` (n, d).

    Explicit float64 differences in blocks of columns.  The Gram form ‖a‖² + ‖b‖² − 2ab is at most twice as fast for
    n ≤ 100 and loses the digits of two rows that are close to each other but far from the centre it is taken about;
    here a row of 1e30 touches its own distances only.  O(n² d).
    """
    n, d = rows.shape
    pairs = torch.zeros(n * (n - 1) // 2, dtype=torch.float64, device=rows.device)
    for start in range(0, d, BLOCK):
        pairs += torch.pdist(rows[:, start : start + BLOCK].detach().to(torch.float64)).square_()
    out = torch.zeros((n, n), dtype=torch.float64, device=rows.device)
    i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
    out[i, j] = pairs
    out[j, i] = pairs
    return out


def distances_to(rows: Tensor, centre: Tensor, order: Literal[1, 2] = 2) -> Tensor:
    """(n,) float64 ℓ1 or ℓ2 distances ‖v_i − c‖ of ``rows`` (n, d) to ``centre`` (d,)."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        difference = rows[:, part].to(torch.float64) - centre[part].to(torch.float64)
        total += torch.linalg.vector_norm(difference, ord=order, dim=1) ** order
    return total if order == 1 else total.sqrt()


def mix_differences(rows: Tensor, centre: Tensor, p: Tensor) -> Tensor:
    """(d,) float64 Σ p_i (v_i − c) for ``rows`` (n, d), ``centre`` (d,) and any weights ``p`` (n,)."""
    weights = p.to(rows.device, torch.float64)
    out = torch.empty(rows.shape[1], dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = weights @ (rows[:, part].to(torch.float64) - centre[part].to(torch.float64))
    return out
