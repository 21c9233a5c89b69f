"""Progress over a whole study: a bar on a terminal; elsewhere a line per finished run and every few minutes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from smartfl.experiment.schema import Experiment
from smartfl.records.round import RoundRecord
from smartfl.reproduce.plan import Plan
from smartfl.runs.grid import Cell
from smartfl.tracking.callback import Callback, Run

OFTEN = 300.0  # seconds between lines while no run ends


class StudyProgress(Callback):
    """Counts rounds of all runs, those of earlier sittings included.

    Time left = Σ over open runs of (rounds left) × (seconds a round of the same dataset, models and local work took
    in this sitting) / (runs side by side); kinds of runs that have not begun are taken to cost the mean.
    """

    def __init__(self, plan: Plan, jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._jobs = clock, max(1, jobs)
        self._experiments = {p.path: p.experiment for p in plan.runs}
        self._done = {p.path: p.begun for p in plan.runs}
        self._heard: dict[Path, float] = {}
        self._told = clock()
        before = sum(self._done.values())
        self._cost: dict[object, tuple[float, int]] = {}
        self._shown = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds  {task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        total = sum(e.rounds for e in self._experiments.values())
        title = f"{plan.study.name}: {len(self._experiments)} runs"
        self._opening = f"{title}, {before:,} of {total:,} rounds done"
        self._task = self._shown.add_task(title, total=total, completed=sum(self._done.values()), note="", left="")

    def on_round(self, run: Run, record: RoundRecord) -> None:
        assert run.path is not None
        round, path = record.round, run.path
        now, before = self._clock(), self._heard.get(path)
        if before is not None and round > self._done[path]:
            seconds, rounds = self._cost.get(_kind(run.experiment), (0.0, 0))
            self._cost[_kind(run.experiment)] = seconds + now - before, rounds + round - self._done[path]
        self._heard[path], self._done[path] = now, round
        note = run.name if record.accuracy is None else f"{run.name} {record.accuracy:.3f}"
        left = self.left
        text = "" if left is None else f"left {duration(left)}"
        self._shown.update(self._task, completed=sum(self._done.values()), note=note, left=text)
        if self._shown.disable and (round >= run.experiment.rounds or now - self._told >= OFTEN):
            self._told = now
            self._tell(note if round >= run.experiment.rounds else f"{note} at round {round}", text)

    @property
    def left(self) -> float | None:
        """Seconds until everything is done; None as long as no second round was heard of."""
        if not self._cost:
            return None
        mean = sum(s for s, _ in self._cost.values()) / sum(n for _, n in self._cost.values())
        each = {kind: seconds / rounds for kind, (seconds, rounds) in self._cost.items()}
        open_runs = [(e, e.rounds - self._done[p]) for p, e in self._experiments.items() if e.rounds > self._done[p]]
        work = sum(rounds * each.get(_kind(e), mean) for e, rounds in open_runs)
        return work / max(1, min(self._jobs, len(open_runs)))

    def _tell(self, note: str, left: str) -> None:
        finished = sum(self._done[p] >= e.rounds for p, e in self._experiments.items())
        print(
            f"{finished}/{len(self._experiments)} runs: {note}{', ' if left else ''}{left}", file=sys.stderr, flush=True
        )

    def __enter__(self) -> Self:
        if self._shown.disable:
            print(self._opening, file=sys.stderr, flush=True)
        self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()


def waiting(seconds: float, cells: Sequence[Cell]) -> None:
    """Say what is waited for."""
    runs = "a run" if len(cells) == 1 else f"{len(cells)} runs"
    print(f"{runs} held by another process: waiting up to {duration(seconds)}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``7 min``, ``40 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _kind(experiment: Experiment) -> object:
    """What the cost of a round depends on most."""
    models = tuple(named.name for named in experiment.model)
    return experiment.data.dataset, models, experiment.client.epochs, experiment.cohort_size
