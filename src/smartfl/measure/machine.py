"""The two limits of a machine: how fast it multiplies, and how fast it reads memory."""

from __future__ import annotations

from typing import Any

import torch

from smartfl.executors.processes import cores
from smartfl.measure.clock import best, threads
from smartfl.runs.environment import environment


def sgemm_peak(budget: float, size: int = 1024) -> float:
    """GFLOP/s of a float32 product of two (size, size) matrices on one core: 2·size³ operations."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    with threads(1):
        return 2 * size**3 / best(lambda: torch.mm(a, b, out=out), budget) / 1e9


def read_bandwidth(budget: float, workers: int, megabytes: int = 256) -> float:
    """GB/s at which ``workers`` threads read memory: a matrix far beyond the caches, times a vector."""
    matrix = torch.rand(64, megabytes * 2**20 // 256)
    vector, out = torch.rand(matrix.shape[1]), torch.empty(64)
    with threads(workers):
        return 4 * matrix.numel() / best(lambda: torch.mv(matrix, vector, out=out), budget) / 1e9


def measure_machine(budget: float, megabytes: int = 256) -> dict[str, Any]:
    """Processor, cores, versions and the two limits, JSON-ready."""
    count = cores()
    return {
        "processor": environment(count, "none", "cpu")["processor"],
        "cores": count,
        "torch": torch.__version__,
        "sgemm_gflops_per_core": sgemm_peak(budget),
        "read_gb_per_second": {str(k): read_bandwidth(budget, k, megabytes) for k in sorted({1, count})},
    }
