"""Rules that treat every coordinate alone, computed in blocks of columns that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

BLOCK = 8192


def by_columns(statistic: Callable[[Tensor], Tensor], matrix: Tensor, block: int = BLOCK) -> Tensor:
    """Apply ``statistic`` (n, b) → (b,) to blocks of columns of ``matrix`` (n, d); returns (d,)."""
    out = matrix.new_empty(matrix.shape[1])
    for start in range(0, matrix.shape[1], block):
        out[start : start + block] = statistic(matrix[:, start : start + block])
    return out


def trimmed(values: Tensor, b: int) -> Tensor:
    """Per column, the mean of what is left without the b smallest and b largest of n values; (n, k) → (k,).

    The sorted array is sliced, never "sum minus extremes": 1e30 − 1e30 would eat the small values.
    """
    n = values.shape[0]
    kept = values.sort(dim=0).values[b : n - b]
    # The mean is taken around the smallest kept value, so that equal values give exactly that value.
    base = kept[0]
    return base + (kept - base).mean(dim=0)


def middle(values: Tensor) -> Tensor:
    """Per column the median, the mean of the two middle values for even n; (n, k) → (k,)."""
    n = values.shape[0]
    return trimmed(values, (n - 1) // 2)
