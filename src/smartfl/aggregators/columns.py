"""Rules that treat every coordinate alone, computed in blocks of columns that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

BLOCK = 8192


def by_columns(statistic: Callable[[Tensor], Tensor], matrix: Tensor, block: int = BLOCK) -> Tensor:
    """Apply ``statistic`` (n, b) → (b,) to blocks of columns of ``matrix`` (n, d); returns (d,)."""
    out = matrix.new_empty(matrix.shape[1])
    for start in range(0, matrix.shape[1], block):
        out[start : start + block] = statistic(matrix[:, start : start + block])
    return out


def ascending(values: Tensor) -> Tensor:
    """The n values of every column in ascending order; (n, k) → (k, n)."""
    columns = values.detach().T.contiguous()
    if columns.device.type == "cpu" and columns.dtype in (torch.float32, torch.float64):
        # NumPy sorts short contiguous runs with vector instructions: 10 to 20 times faster than torch here.
        return torch.from_numpy(np.sort(columns.numpy(), axis=1))
    return columns.sort(dim=1).values


def trimmed(values: Tensor, b: int) -> Tensor:
    """Per column, the mean of what is left without the b smallest and b largest of n values; (n, k) → (k,).

    The sorted array is sliced, never "sum minus extremes": 1e30 − 1e30 would eat the small values.
    """
    n = values.shape[0]
    return mean_of_runs(ascending(values)[:, b : n - b])


def middle(values: Tensor) -> Tensor:
    """Per column the median, the mean of the two middle values for even n; (n, k) → (k,)."""
    n = values.shape[0]
    return trimmed(values, (n - 1) // 2)


def mean_of_runs(kept: Tensor) -> Tensor:
    """The mean of every row of ``kept`` (k, m), exact where all m values are equal; returns (k,)."""
    base = kept[:, :1]
    mean = base + (kept - base).mean(dim=1, keepdim=True)
    if not torch.isfinite(mean).all():  # the difference of two values near the ends of float32 is no float32
        mean = mean.where(torch.isfinite(mean), (kept / kept.shape[1]).sum(dim=1, keepdim=True))
    return mean.squeeze(1)
