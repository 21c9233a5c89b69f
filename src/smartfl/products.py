"""The two products of a server step, pᵀW and W·g, for client matrices of any size and storage.

W (n, d) may be float32 or float64, may be stored as bfloat16 or float16, and may be a mapped file larger than memory:
neither product makes an (n, d) temporary, and what is read of a mapped file stays the page cache's to keep or drop.
One float32 product runs at memory bandwidth as it is (measured: blocks gain nothing), so only half precision is cut
into blocks of columns, which are widened to float32 in the cache.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 1 << 16  # columns of a half-precision matrix that are widened at once
RUN = 1 << 18  # columns whose float32 dot products are added up in float32; beyond that in float64


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in for a matrix stored as ``dtype``: half precision is for storage only."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def mix_rows(matrix: Tensor, p: Tensor, out: Tensor | None = None) -> Tensor:
    """(d,) Σ p_i w_i for ``matrix`` (n, d) and weights ``p`` (n,), into ``out`` where given."""
    dtype = arithmetic(matrix.dtype)
    weights = p.to(matrix.device, dtype)
    if out is None:
        out = torch.empty(matrix.shape[1], dtype=dtype, device=matrix.device)
    if dtype == matrix.dtype:
        return torch.mv(matrix.t(), weights, out=out)
    for start in range(0, matrix.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        torch.mv(matrix[:, part].to(dtype).t(), weights, out=out[part])
    return out


def inner_products(matrix: Tensor, vector: Tensor) -> Tensor:
    """(n,) float64 ⟨w_i, v⟩ for ``matrix`` (n, d) and ``vector`` (d,)."""
    dtype = arithmetic(matrix.dtype)
    step = RUN if dtype == matrix.dtype else BLOCK
    total = torch.mv(matrix[:, :step].to(dtype), vector[:step]).to(torch.float64)
    for start in range(step, matrix.shape[1], step):
        part = slice(start, start + step)
        total += torch.mv(matrix[:, part].to(dtype), vector[part])
    if not math.isfinite(total.sum().item()):  # a huge row overflows float32 although the exact product may not
        for i in torch.nonzero(~torch.isfinite(total)).flatten().tolist():
            total[i] = _exact(matrix[i], vector)
    return total


def _exact(row: Tensor, vector: Tensor) -> float:
    """⟨w, v⟩ of ``row`` (d,) and ``vector`` (d,) in float64, a run at a time."""
    runs = range(0, len(row), RUN)
    parts = (row[k : k + RUN].to(torch.float64) @ vector[k : k + RUN].to(torch.float64) for k in runs)
    return math.fsum(part.item() for part in parts)
