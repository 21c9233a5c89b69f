"""Long-lived single-threaded worker processes over shared memory; only integers cross the pipes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from smartfl.errors import WorkerError
from smartfl.executors.orphans import end_with_parent
from smartfl.executors.watchdog import TICK, too_long

if TYPE_CHECKING:
    from smartfl.executors.bench import Bundle

log = logging.getLogger(__name__)

_READY = "ready"
_PRELOAD = ["smartfl.executors.bench", "smartfl.executors.processes", "smartfl.runs.execute"]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warm_up() -> None:
    """Start the process that workers are forked from; it imports torch while the caller does the same.

    A fork of *this* process would be unsafe once it has used autograd or OpenMP, and a spawned one would import
    torch anew for every worker.
    """
    if sys.platform != "win32":
        forkserver.set_forkserver_preload(_PRELOAD)
        before = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"  # or `python -c`, which it is started by, imports from the current directory
        try:
            forkserver.ensure_running()
        finally:
            os.environ.pop("PYTHONSAFEPATH")
            if before is not None:
                os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the user's script while a worker starts.

    multiprocessing would import it again in every worker, and a script without an ``if __name__`` guard would run
    twice.  Workers need nothing of it: they are told names and shared memory.
    """
    main = sys.modules["__main__"]
    saved: dict[str, Any] = {k: main.__dict__.pop(k) for k in ("__spec__", "__file__") if k in main.__dict__}
    main.__dict__["__spec__"] = None
    try:
        yield
    finally:
        main.__dict__.update(saved)


def _serve(pipe: Connection, job: Any) -> None:
    """A worker's life: one task after another until the pipe closes."""
    import torch

    from smartfl.executors.bench import Bench, EvaluateTask, TrainTask
    from smartfl.executors.memory import keep_freed_memory

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        bench = Bench(job)
        pipe.send(_READY)
        while True:
            kind, work = pipe.recv()
            if kind == "train":
                pipe.send(bench.train(tuple(TrainTask(*task) for task in work)))
            else:
                pipe.send(bench.evaluate(EvaluateTask(*work)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        last_words = (f"{type(error).__name__}: {error}", traceback.format_exc())
        with suppress(OSError):  # the parent may be gone already, over another worker's failure
            pipe.send(last_words)


@dataclass(frozen=True)
class Work:
    """A message for a worker, what it is about, and of how many clients; training may be left out of a round."""

    message: tuple[str, Any]
    what: str
    size: int = 1
    may_be_left_out: bool = False


@dataclass
class Assigned:
    """Which work a worker has, since when, and whether it was said that it takes long."""

    number: int
    since: float
    told: bool = False


class Processes:
    """``workers`` processes that train and evaluate side by side.

    A free worker gets the next task, so the order of work depends on timing; the results do not, as every task has its
    own random stream and its own place on the board.
    """

    def __init__(self, job: Any, workers: int) -> None:
        from smartfl.executors.shared import share

        self.job = share(job)
        warm_up()
        self._workers: dict[Connection, BaseProcess] = {}
        self._starting: set[Connection] = set()
        self._free: list[Connection] = []
        for _ in range(workers):
            self._start()

    def _start(self) -> None:
        """One more worker; it says when it is ready for tasks."""
        import torch.multiprocessing

        method = "spawn" if sys.platform == "win32" else "forkserver"
        context: Any = torch.multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.job), daemon=True)
        with hidden_main():
            process.start()
        theirs.close()
        self._workers[ours] = process
        self._starting.add(ours)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers: politely if they wait, by SIGKILL if they are at work or stopped."""
        for pipe in self._workers:
            pipe.close()
        end = time.monotonic() + 0.2
        for process in self._workers.values():
            process.join(timeout=max(0.0, end - time.monotonic()))
        for process in self._workers.values():
            process.kill()
            process.join()

    def train(self, bundles: Sequence[Bundle]) -> list[list[int] | None]:
        """Train every bundle's clients; hand the longest bundles in first.

        None for a bundle that did not answer within ``client.timeout`` a client: its worker was ended, and what it
        wrote by then must not be used.
        """
        from smartfl.executors.bench import described

        # Plain tuples: a pickled NamedTuple carries the name of its class every time.
        work = [Work(("train", tuple(map(tuple, b))), described(b), len(b), may_be_left_out=True) for b in bundles]
        return self._scatter(work)

    def evaluate(self, tasks: Sequence[tuple[int, ...]]) -> list[int]:
        """Evaluate every task's chunk."""
        return self._scatter([Work(("evaluate", tuple(t)), f"evaluation chunk {t[0]}") for t in tasks])

    def _scatter(self, work: Sequence[Work]) -> list[Any]:
        results: list[Any] = [None] * len(work)
        waiting = list(reversed(range(len(work))))
        busy: dict[Connection, Assigned] = {}
        while waiting or busy:
            while waiting and self._free:
                pipe, number = self._free.pop(), waiting.pop()
                with suppress(BrokenPipeError, ConnectionResetError):  # gone: recv below finds its last words
                    pipe.send(work[number].message)
                busy[pipe] = Assigned(number, time.monotonic())
            for ready in wait([*busy, *self._starting], timeout=TICK):
                pipe = next(p for p in self._workers if p is ready)
                assigned = busy.pop(pipe, None)
                answer = self._heard(pipe, "its start" if assigned is None else work[assigned.number].what)
                self._starting.discard(pipe)
                if assigned is not None:
                    results[assigned.number] = answer
                self._free.append(pipe)
            for pipe in [p for p, assigned in busy.items() if self._is_late(p, assigned, work[assigned.number])]:
                del busy[pipe]  # its result stays None
                self._replace(pipe)
        return results

    def _heard(self, pipe: Connection, what: str) -> Any:
        """What a worker says, unless it is its last words."""
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._lost(pipe, what) from None
        if isinstance(answer, tuple):
            raise WorkerError(f"{what} failed: {answer[0]}\n{answer[1]}")
        return answer

    def _is_late(self, pipe: Connection, assigned: Assigned, work: Work) -> bool:
        """Whether the time for this work is over; that it takes long is said once."""
        client = self.job.experiment.client
        elapsed = time.monotonic() - assigned.since
        if elapsed > client.warn_after * work.size and not assigned.told:
            assigned.told = True
            log.warning(too_long(work.what, elapsed, self._workers[pipe].pid))
        return work.may_be_left_out and client.timeout is not None and elapsed > client.timeout * work.size

    def _replace(self, pipe: Connection) -> None:
        """End a worker, and start another in its place."""
        process = self._workers.pop(pipe)
        process.kill()
        process.join()
        pipe.close()
        self._start()

    def _lost(self, pipe: Connection, what: str) -> WorkerError:
        process = self._workers[pipe]
        process.join(timeout=1)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return WorkerError(f"the worker at {what} {how}{memory}; the run can be resumed with --resume")
