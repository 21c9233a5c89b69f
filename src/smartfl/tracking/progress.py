"""Progress on a terminal: round, accuracy, time left; elsewhere only what a run warns of."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from smartfl.experiment.schema import Experiment
from smartfl.records.round import RoundRecord
from smartfl.tracking.callback import Callback, Run


class RoundProgress(Callback):
    """A bar of the rounds of one run or of several, on standard error and on a terminal only.

    Of one run alone, each warning is told once, above the bar.
    """

    def __init__(self, experiments: Mapping[Path, Experiment]) -> None:
        self._done = {
            path: experiment.rounds if (path / "result.json").exists() else 0
            for path, experiment in experiments.items()
        }
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds  {task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._alone = len(experiments) == 1
        title = next(iter(experiments)).name if self._alone else f"{len(experiments)} runs"
        total = sum(experiment.rounds for experiment in experiments.values())
        self._task = self._bar.add_task(title, total=total, note="")
        self._warned: set[str] = set()

    def on_round(self, run: Run, record: RoundRecord) -> None:
        if run.path is not None:
            self._done[run.path] = record.round
        said = "" if record.accuracy is None else f"{record.accuracy:.3f}"
        note = f"accuracy {said}" if self._alone and said else f"{'' if self._alone else run.name} {said}".strip()
        self._bar.update(self._task, completed=sum(self._done.values()), note=note)
        if self._alone:
            for text in record.warnings:
                if text not in self._warned:
                    self._warned.add(text)
                    said = f"round {record.round}: {text}"
                    self._bar.console.print(said, style="yellow", highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
