"""Progress on a terminal: round, accuracy, time left; elsewhere only what a run warns of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from smartfl.experiment.schema import Experiment
from smartfl.records.round import RoundRecord
from smartfl.runs.grid import Cell


class _Bar:
    """A rich progress bar on standard error, shown only on a terminal."""

    def __init__(self, title: str, total: int, unit: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}  {{task.fields[note]}}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(title, total=total, note="")
        self._warned: set[str] = set()

    def advance_to(self, done: int, note: str) -> None:
        self._progress.update(self._task, completed=done, note=note)

    def warn(self, round: int, warnings: Sequence[str]) -> None:
        """Each warning once, above the bar."""
        for text in warnings:
            if text not in self._warned:
                self._warned.add(text)
                self._progress.console.print(f"round {round}: {text}", style="yellow", highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class RunProgress(_Bar):
    """One run."""

    def __init__(self, experiment: Experiment, path: Path) -> None:
        super().__init__(path.name, experiment.rounds, "rounds")

    def watch(self, record: RoundRecord) -> None:
        note = "" if record.accuracy is None else f"accuracy {record.accuracy:.3f}"
        self.advance_to(record.round, note)
        self.warn(record.round, record.warnings)


class GridProgress(_Bar):
    """All runs of a grid together, counted in rounds."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__(f"{len(cells)} runs", sum(cell.experiment.rounds for cell in cells), "rounds")
        self._done: dict[Path, int] = {
            cell.path: cell.experiment.rounds if (cell.path / "result.json").exists() else 0 for cell in cells
        }

    def watch(self, cell: Cell, round: int, accuracy: float | None) -> None:
        self._done[cell.path] = round
        note = cell.path.name if accuracy is None else f"{cell.path.name} {accuracy:.3f}"
        self.advance_to(sum(self._done.values()), note)
