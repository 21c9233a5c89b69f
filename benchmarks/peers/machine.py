"""What the measurements were taken on, and how fast its arithmetic can be."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from peers.workload import BATCH, Files
from smartfl.runs.environment import environment


def describe() -> dict[str, Any]:
    """Processor, cores, memory, versions, revision and how busy the machine is."""
    known = environment(0, "", "cpu")
    meminfo = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    memory = next(int(line.split()[1]) for line in meminfo if line.startswith("MemTotal"))
    return {
        "processor": known["processor"],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**20, 1),
        "platform": platform.platform(),
        "python": known["python"],
        "packages": known["packages"],
        "revision": known["revision"],
        "load": round(os.getloadavg()[0], 2),
    }


def sgemm_peak(sizes: tuple[int, ...] = (1024, 1536, 2048), tries: int = 6) -> float:
    """The most float32 operations a second that one core reached in a matrix product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    best = 0.0
    for n in sizes:
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        for _ in range(tries):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = max(best, 2 * n**3 / (time.perf_counter() - start))
    torch.set_num_threads(before)
    return best


def flops_per_sample(directory: Path) -> float:
    """Float operations of one training sample: forward and backward products as torch counts them."""
    files = Files(directory)
    model, (x, y) = files.model(), files.client(0)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(x[:BATCH]), y[:BATCH]).backward()
    return counter.get_total_flops() / BATCH
