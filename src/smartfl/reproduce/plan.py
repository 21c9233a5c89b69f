"""A study as a list of run directories, each done, begun or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.experiment.study import Point, Selection, Study, Trial
from smartfl.reproduce.ledger import Found, Ledger
from smartfl.runs.checkpoint import last_round
from smartfl.runs.grid import Cell


@dataclass(frozen=True)
class Planned:
    """A trial, its complete experiment, its run directory, and the records that exist of it.

    ``beginning`` is a run or record, of fewer rounds than wanted, that is ahead of what is in the run directory.
    """

    trial: Trial
    experiment: Experiment
    path: Path
    found: Found | None
    beginning: Path | None = None

    @property
    def finished(self) -> bool:
        return self.found is not None and self.found.finished

    @property
    def done(self) -> int:
        """Rounds that are recorded."""
        return 0 if self.found is None else self.found.done

    @property
    def begun(self) -> int:
        """Rounds that need not be run again: of what is not finished those up to the checkpoint it goes on from."""
        return self.done if self.finished else last_round(self.beginning or self.path)


@dataclass(frozen=True)
class Plan:
    """A study, the part of it that is wanted, and every run of that part."""

    study: Study
    runs: tuple[Planned, ...]

    @cached_property
    def columns(self) -> tuple[tuple[Point, ...], ...]:
        """Combinations of axis points, in the study's order."""
        return tuple({planned.trial.column: planned.trial.points for planned in self.runs}.values())

    @cached_property
    def methods(self) -> tuple[str, ...]:
        wanted = {planned.trial.method for planned in self.runs}
        return tuple(name for name in self.study.methods if name in wanted)

    @cached_property
    def _cells(self) -> dict[tuple[str, tuple[str, ...]], list[Planned]]:
        cells: dict[tuple[str, tuple[str, ...]], list[Planned]] = {}
        for planned in self.runs:
            cells.setdefault((planned.trial.method, planned.trial.column), []).append(planned)
        return cells

    def cell(self, method: str, column: tuple[Point, ...]) -> list[Planned]:
        """The runs of a method in a column, a seed each; empty where the method does not apply."""
        return self._cells.get((method, tuple(point.label for point in column)), [])

    @property
    def open(self) -> list[Cell]:
        """What is left to run, each directory once."""
        left = {p.path: Cell(p.experiment, p.path) for p in self.runs if not p.finished}
        return list(left.values())


def plan(study: Study, selection: Selection, out: Path, stores: Sequence[Path] = ()) -> Plan:
    """The runs of ``study`` below ``out``; what is there or in ``stores`` counts as done."""
    ledger = Ledger([out, *stores])
    completed: dict[tuple[str, tuple[str, ...]], Experiment] = {}
    runs = []
    for trial in study.trials(selection):
        key = trial.method, trial.column
        if key not in completed:
            completed[key] = Resolved.complete(trial.experiment)
        experiment = completed[key].model_copy(update={"seed": trial.experiment.seed})
        home = ledger.home(experiment, out, stores)
        beginning = ledger.beginning(experiment, past=0 if home is None else last_round(home))
        path = home or out / f"{experiment.name}-{experiment.digest}"
        runs.append(Planned(trial, experiment, path, ledger.find(experiment), beginning))
    return Plan(study, tuple(runs))


def in_use(path: Path) -> bool:
    """Whether a process holds the run directory; a record that nobody ever ran in has no lock, and gets none."""
    if not (path / "lock").exists():
        return False
    try:
        with FileLock(path / "lock").acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # not ours to write: whoever tries to run it will be told
        return False
