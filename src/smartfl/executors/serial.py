"""One client after another in this process: the executor to debug with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from smartfl.errors import WorkerError
from smartfl.executors.bench import Bench, Bundle, EvaluateTask, Job, described
from smartfl.executors.watchdog import Watchdog


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
        self.job, self.bench = job, Bench(job)
        self._watchdog = Watchdog(job.experiment.client.warn_after)

    def __enter__(self) -> Serial:
        self._watchdog.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._watchdog.stop()

    def train(self, bundles: Sequence[Bundle]) -> list[list[int] | None]:
        """Train every bundle's clients; returns their numbers of steps."""
        steps: list[list[int] | None] = []
        with single_threaded():
            for bundle in bundles:
                self._watchdog.begin(described(bundle))
                try:
                    steps.append(self.bench.train(bundle))
                except Exception as error:
                    raise WorkerError(f"{described(bundle)} failed: {error}") from error
                finally:
                    self._watchdog.end()
        return steps

    def evaluate(self, tasks: Sequence[EvaluateTask]) -> list[int]:
        """Evaluate every task's chunk."""
        with single_threaded():
            return [self.bench.evaluate(task) for task in tasks]
