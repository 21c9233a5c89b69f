"""Rules that treat every coordinate alone, computed in blocks of columns that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from smartfl.aggregators.blocks import columns_at_once, for_blocks
from smartfl.products import arithmetic


def by_columns(statistic: Callable[[Tensor], Tensor], matrix: Tensor, block: int | None = None) -> Tensor:
    """Apply ``statistic`` (n, b) → (b,) to blocks of columns of ``matrix`` (n, d); returns (d,)."""
    dtype = arithmetic(matrix.dtype)
    out = torch.empty(matrix.shape[1], dtype=dtype, device=matrix.device)

    def work(part: slice) -> None:
        out[part] = statistic(matrix[:, part].to(dtype))

    for_blocks(work, matrix.shape[1], block or columns_at_once(len(matrix), dtype))
    return out


def ascending(values: Tensor) -> Tensor:
    """The n values of every column in ascending order; (n, k) → (k, n).

    A full sort, because it is the fastest selection there is here: NumPy sorts short contiguous runs with vector
    instructions, 10 to 20 times faster than torch, while its partition does without them, and a selection network of
    row-wise minima and maxima (578 for the median of 48) takes as long and holds the interpreter's lock between them.
    """
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        columns = np.array(values.detach().numpy().T, order="C")
        columns.sort(axis=1)
        return torch.from_numpy(columns)
    return values.detach().T.contiguous().sort(dim=1).values


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
    m, base = kept.shape[1], kept[:, 0]
    # A reduction over rows of one or two takes as long as the sort before it.
    mean = base + ((kept[:, -1] - base) / 2 if m <= 2 else (kept - base[:, None]).mean(dim=1))
    if not torch.isfinite(mean).all():  # the difference of two values near the ends of float32 is no float32
        mean = mean.where(torch.isfinite(mean), (kept / m).sum(dim=1))
    return mean
