"""Many runs on one machine: one process per cell, a few at a time, each resumable on its own."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from smartfl.errors import InUse, UserError, WorkerError
from smartfl.executors.orphans import end_with_parent
from smartfl.executors.processes import cores, hidden_main, warm_up
from smartfl.experiment.schema import Experiment
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.tracking.callback import Callback, Callbacks, Run


@dataclass(frozen=True)
class Cell:
    """One run of a grid: what to run, and where."""

    experiment: Experiment
    path: Path


def run_grid(
    cells: Sequence[Cell],
    *,
    jobs: int | None = None,
    fresh: bool = False,
    device: str = "cpu",
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run every cell that is not finished; ``callbacks`` hear of all of them, in this process.

    With at least two cells, one single-threaded process per core has no barrier between clients and beats parallel
    clients; the results are the same.  A single cell, or ``jobs=1``, uses parallel clients instead.  Ctrl-C ends the
    cells after their last checkpoint; running the grid again goes on from there.  A cell that fails does not keep the
    others from their work and is told of at the end, and so does one that another process has taken meanwhile; a
    setting that cannot be honoured ends the grid at once.
    """
    jobs = min(jobs or cores(), len(cells))
    run = _run_in_turn if jobs <= 1 else partial(_run_apart, jobs)
    tell_failures(run(cells, fresh, device, Callbacks(callbacks)), len(cells))


def tell_failures(failures: Sequence[str], runs: int) -> None:
    """Raise what went wrong in a grid of ``runs`` runs, if anything."""
    if failures:
        others = f"; {len(failures)} of {runs} runs failed, the others are done" if runs > 1 else ""
        sentence, _, trace = failures[0].partition("\n")
        raise WorkerError(f"{sentence}{others}\n{trace}".rstrip())


def _run_in_turn(cells: Sequence[Cell], fresh: bool, device: str, callback: Callback) -> list[str]:
    from smartfl.runs.execute import execute

    failures = []
    for cell in cells:
        try:
            execute(cell.experiment, cell.path, resume=not fresh, fresh=fresh, device=device, callbacks=[callback])
        except InUse as error:
            failures.append(str(error))
        except UserError:
            raise
        except Exception as error:
            failures.append(_told(cell, error))
    return failures


def _told(cell: Cell, error: Exception) -> str:
    """One sentence, and below it the traceback, which --debug shows."""
    what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return f"the run '{cell.path}' failed: {what}\n{''.join(traceback.format_exception(error))}"


def _run_apart(
    jobs: int,
    cells: Sequence[Cell],
    fresh: bool,
    device: str,
    callback: Callback,
) -> list[str]:
    import torch.multiprocessing

    warm_up()
    context: Any = torch.multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    waiting = list(reversed(cells))
    running: dict[Connection, tuple[Cell, Any]] = {}
    begun: dict[Connection, Run] = {}
    failures: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop()
                ours, theirs = context.Pipe()
                process = context.Process(target=_run_cell, args=(theirs, cell, fresh, device), daemon=True)
                with hidden_main():
                    process.start()
                theirs.close()
                running[ours] = cell, process
            for ready in wait(list(running)):
                pipe = next(p for p in running if p is ready)
                cell, process = running[pipe]
                try:
                    message = pipe.recv()
                except (EOFError, ConnectionResetError):
                    del running[pipe]
                    if (broken := begun.pop(pipe, None)) is not None:
                        callback.on_end(broken, None)
                    process.join()
                    if process.exitcode != 0:
                        how = f"its process ended with status {process.exitcode}"
                        failures.append(f"the run '{cell.path}' failed: {how}; it can be resumed")
                    continue
                if message[0] == "user":
                    raise UserError(message[1])
                if message[0] == "failure":
                    failures.append(message[1])
                elif message[0] == "start":
                    begun[pipe] = message[1]
                    callback.on_start(message[1])
                elif message[0] == "round":
                    pipe.send(bool(callback.on_round(begun[pipe], message[1])))
                else:
                    callback.on_end(begun.pop(pipe), message[1])
        return failures
    finally:
        for broken in begun.values():
            callback.on_end(broken, None)
        for _, process in running.values():
            process.kill()  # a stopped process would never see SIGTERM; what it wrote is whole at any moment
        for _, process in running.values():
            process.join()


class _Reporting(Callback):
    """Tells the parent, whose callbacks say whether the run ends."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def on_start(self, run: Run) -> None:
        self._pipe.send(("start", run))

    def on_round(self, run: Run, record: RoundRecord) -> bool:
        self._pipe.send(("round", record))
        return bool(self._pipe.recv())

    def on_end(self, run: Run, result: Result | None) -> None:
        self._pipe.send(("end", result))


def _run_cell(pipe: Connection, cell: Cell, fresh: bool, device: str) -> None:
    """A cell's life: train serially, tell the parent of every round."""
    import torch

    from smartfl.runs.execute import execute

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    end_with_parent()
    try:
        execute(
            cell.experiment,
            cell.path,
            resume=not fresh,
            fresh=fresh,
            executor="serial",
            device=device,
            callbacks=[_Reporting(pipe)],
        )
    except InUse as error:
        pipe.send(("failure", str(error)))
    except UserError as error:
        pipe.send(("user", str(error)))
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return
    except Exception as error:
        pipe.send(("failure", _told(cell, error)))
