"""Pairwise squared distances between clients, exact enough to rank them."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 65536


def squared_distances(rows: Tensor) -> Tensor:
    """(n, n) float64 matrix of ‖v_i − v_j‖² for ``rows`` (n, d).

    Float64 Gram products of the rows, centred on their mean, in blocks of columns: float32 products lose all digits when
    clients are close to each other relative to their norm, and overflow for a row of 1e30.
    """
    n, d = rows.shape
    out = torch.zeros((n, n), dtype=torch.float64, device=rows.device)
    for start in range(0, d, BLOCK):
        block = rows[:, start : start + BLOCK].to(torch.float64)
        # The distance ignores a common shift; a huge row must not be in it, hence the median row.
        block = block - block.median(dim=0).values
        gram = block @ block.T
        square = gram.diagonal()
        out += square[:, None] + square[None, :] - 2 * gram
    out.fill_diagonal_(0)
    return out.clamp_min_(0)
