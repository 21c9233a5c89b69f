"""Long-lived single-threaded worker processes over shared memory; only integers cross the pipes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from smartfl.errors import WorkerError

if TYPE_CHECKING:
    from smartfl.executors.bench import Bundle

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
        forkserver.ensure_running()


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
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        bench = Bench(job)
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


class Processes:
    """``workers`` processes that train and evaluate side by side.

    A free worker gets the next task, so the order of work depends on timing; the results do not, as every task has its
    own random stream and its own place on the board.
    """

    def __init__(self, job: Any, workers: int) -> None:
        import torch.multiprocessing

        warm_up()
        method = "spawn" if sys.platform == "win32" else "forkserver"
        context: Any = torch.multiprocessing.get_context(method)
        self.job = job.share_memory_()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, job), daemon=True, name=f"smartfl-{number}")
            with hidden_main():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers: at once if they are at work, politely if they wait."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=0.2)
            if process.is_alive():
                process.terminate()
                process.join()

    def train(self, bundles: Sequence[Bundle]) -> list[list[int]]:
        """Train every bundle's clients; hand the longest bundles in first."""
        from smartfl.executors.bench import described

        # Plain tuples: a pickled NamedTuple carries the name of its class every time.
        return self._scatter([("train", tuple(map(tuple, b))) for b in bundles], lambda i: described(bundles[i]))

    def evaluate(self, tasks: Sequence[tuple[int, ...]]) -> list[int]:
        """Evaluate every task's chunk."""
        return self._scatter([("evaluate", tuple(t)) for t in tasks], lambda i: f"evaluation chunk {tasks[i][0]}")

    def _scatter(self, messages: Sequence[tuple[str, Any]], describe: Callable[[int], str]) -> list[Any]:
        results: list[Any] = [None] * len(messages)
        waiting = list(reversed(range(len(messages))))
        busy: dict[Connection, int] = {}
        free = list(self._pipes)
        while waiting or busy:
            while waiting and free:
                pipe, number = free.pop(), waiting.pop()
                with suppress(BrokenPipeError, ConnectionResetError):  # gone: recv below finds its last words
                    pipe.send(messages[number])
                busy[pipe] = number
            for ready in wait(list(busy)):
                pipe = next(p for p in busy if p is ready)
                number = busy.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionResetError):
                    raise self._lost(pipe, describe(number)) from None
                if isinstance(answer, tuple):
                    raise WorkerError(f"{describe(number)} failed: {answer[0]}\n{answer[1]}")
                results[number] = answer
                free.append(pipe)
        return results

    def _lost(self, pipe: Connection, what: str) -> WorkerError:
        process = self._processes[self._pipes.index(pipe)]
        process.join(timeout=1)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
        return WorkerError(f"the worker at {what} {how} (out of memory?); the run can be resumed with --resume")
