"""Work on blocks of columns, side by side on all threads, with results that do not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
BYTES = 1 << 20  # of a block: a thread's temporaries stay near it, and calls from Python are few enough
RUN = 4  # blocks that a thread takes at once: handing over a run costs about 30 µs, a block about 500 µs


def columns_at_once(n: int, dtype: torch.dtype) -> int:
    """How many columns of n values make a block: cache and memory are bounded for any number of clients."""
    return max(64, BYTES // (dtype.itemsize * max(1, n)))


def for_blocks(work: Callable[[slice], None], size: int, block: int) -> None:
    """``work(part)`` for every block of ``size`` columns, or rows; none may depend on another."""

    def run(parts: list[slice]) -> None:
        for part in parts:
            work(part)

    for _ in _each_run(run, size, block):
        pass


def sum_of_blocks(work: Callable[[slice], Tensor], size: int, block: int) -> Tensor:
    """Σ ``work(part)`` over the blocks of ``size`` columns, added up in the same order whoever computed them.

    With no columns there is still one block, an empty one.
    """

    def run(parts: list[slice]) -> Tensor:
        total = work(parts[0])
        for part in parts[1:]:
            total = total + work(part)
        return total

    runs = _each_run(run, max(1, size), block)
    total = next(runs)
    for more in runs:
        total = total + more
    return total


def _each_run(work: Callable[[list[slice]], T], size: int, block: int) -> Iterator[T]:
    """``work`` on runs of neighbouring blocks, in order, on as many threads as torch may use.

    Each run has one thread and torch's own threads are off meanwhile, so a block is computed alike however many
    threads there are, and no operation on a small block waits for a second thread to come and go.
    """
    parts = [slice(start, min(start + block, size)) for start in range(0, size, block)]
    runs = [parts[first : first + RUN] for first in range(0, len(parts), RUN)]
    inference = torch.is_inference_mode_enabled()

    def in_the_callers_mode(parts: list[slice]) -> T:
        with torch.inference_mode(inference):
            return work(parts)

    with _torch_on_one_thread() as threads:
        if min(threads, len(runs)) < 2:
            yield from map(work, runs)
            return
        with ThreadPoolExecutor(min(threads, len(runs)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(in_the_callers_mode, runs)


@contextmanager
def _torch_on_one_thread() -> Iterator[int]:
    """How many threads torch may use; inside, it uses one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
