"""Time by the best of several calls: what else runs on a machine can only make a call slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads in a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best(work: Callable[[], object], budget: float, least: int = 3) -> float:
    """The fewest seconds of a call, over the calls that fit into ``budget`` seconds and at least ``least``.

    The first call is a warm-up and counts for the budget only.
    """
    spent = seconds(work)
    found: list[float] = []
    while len(found) < least or spent < budget:
        found.append(seconds(work))
        spent += found[-1]
    return min(found)
