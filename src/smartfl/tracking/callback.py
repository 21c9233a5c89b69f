"""The interface of callbacks, and the loop that calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from smartfl.experiment.schema import Experiment
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord


@dataclass(frozen=True)
class Run:
    """The run that a callback hears of.

    path  its directory; None where it has none
    done  rounds that were there before, where it goes on
    """

    experiment: Experiment
    path: Path | None = None
    done: int = 0

    @property
    def name(self) -> str:
        return self.experiment.name if self.path is None else self.path.name


class Callback:
    """Does nothing; override what you need.

    Callbacks are called in the process that started the runs, also by grids and on Ray, one call at a time, and a run
    waits for them: so a callback may keep what it likes, and ``run`` tells the runs of a grid apart.  A run that was
    finished before calls nothing.
    """

    def on_start(self, run: Run) -> None:
        """Before the first round, or the first that is left."""

    def on_round(self, run: Run, record: RoundRecord) -> bool | None:
        """After every round, when its record is written; True ends the run, after the next evaluation if need be."""

    def on_end(self, run: Run, result: Result | None) -> None:
        """After the last round; ``result`` is None where the run was broken off."""


class Callbacks(Callback):
    """Several callbacks as one, called in order; each hears of everything."""

    def __init__(self, members: Sequence[Callback]) -> None:
        self.members = tuple(members)

    def on_start(self, run: Run) -> None:
        for member in self.members:
            member.on_start(run)

    def on_round(self, run: Run, record: RoundRecord) -> bool:
        answers = [member.on_round(run, record) for member in self.members]
        return any(answers)

    def on_end(self, run: Run, result: Result | None) -> None:
        for member in self.members:
            member.on_end(run, result)


def follow(records: Iterable[RoundRecord], run: Run, callback: Callback) -> Iterator[RoundRecord]:
    """The records, each after ``callback`` has heard of it, up to the last or to where it ends the run."""
    stop = False
    for record in records:
        stop = bool(callback.on_round(run, record)) or stop
        yield record
        if stop and record.accuracy is not None:  # a result needs an accuracy
            return
