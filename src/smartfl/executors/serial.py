"""One client after another in this process: the executor to debug with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from smartfl.errors import WorkerError
from smartfl.executors.bench import Bench, EvaluateTask, Job, TrainTask


@contextmanager
def single_threaded() -> Iterator[None]:
    """One intra-op thread, as in a worker: sums in another order would be other results."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Serial:
    """Trains in the calling process; results are those of any other executor, bit for bit."""

    def __init__(self, job: Job) -> None:
        self.bench = Bench(job)

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def train(self, tasks: Sequence[TrainTask]) -> list[int]:
        """Train every task's client; returns their numbers of steps."""
        steps = []
        with single_threaded():
            for task in tasks:
                try:
                    steps.append(self.bench.train(task))
                except Exception as error:
                    raise WorkerError(f"client {task.client} failed in round {task.round}: {error}") from error
        return steps

    def evaluate(self, tasks: Sequence[EvaluateTask]) -> list[int]:
        """Evaluate every task's chunk."""
        with single_threaded():
            return [self.bench.evaluate(task) for task in tasks]
