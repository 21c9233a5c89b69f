"""What has been run: run directories and files of records, found by what they computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from smartfl.errors import UserError
from smartfl.experiment.schema import Experiment
from smartfl.records.run import RunRecord
from smartfl.records.store import RunFolder, find_runs
from smartfl.records.study_file import StoredRun
from smartfl.runs.checkpoint import last_round


@dataclass(frozen=True)
class Found:
    """The records of an experiment: cut to its number of rounds, and the whole of them."""

    run: RunRecord
    wanted: int
    whole: RunRecord

    @property
    def done(self) -> int:
        return self.run.rounds[-1].round if self.run.rounds else 0

    @property
    def finished(self) -> bool:
        return self.done >= self.wanted


@dataclass(frozen=True)
class Entry:
    """A run, and its experiment."""

    source: RunFolder | StoredRun
    experiment: Experiment

    @property
    def run(self) -> RunRecord:
        return self.source.run

    @property
    def folder(self) -> Path | None:
        """Its directory; None of a run in a file of records."""
        return self.source.path if isinstance(self.source, RunFolder) else None


class Ledger:
    """The runs under some directories.

    Rounds never depend on how many are planned, so a run of 400 rounds also answers for the one of 200.  Settings are
    compared as they were written: a record from before a setting existed says nothing about the rule of today.
    """

    def __init__(self, roots: Iterable[Path]) -> None:
        self._entries: dict[str, list[Entry]] = {}
        for source in find_runs(roots):
            try:
                entry = Entry(source, Experiment.of(dict(source.settings)))
            except (OSError, ValueError, UserError):
                continue  # not a run of this version of the package
            self._entries.setdefault(trajectory(entry.experiment), []).append(entry)

    def find(self, experiment: Experiment) -> Found | None:
        """The records that reach furthest, or None; ``experiment`` must be complete."""
        found = [_cut(entry, experiment) for entry in self._of(experiment)]
        return max((f for f in found if f is not None), key=lambda f: f.done, default=None)

    def home(self, experiment: Experiment, root: Path, stores: Iterable[Path] = ()) -> Path | None:
        """The directory under ``root`` where exactly this experiment was begun, under whatever name.

        Records in ``stores`` are none, even if the stores are below ``root``.
        """
        inside, outside = root.resolve(), [store.resolve() for store in stores]
        entries = [entry for entry in self._of(experiment) if entry.experiment.rounds == experiment.rounds]
        same = [e.folder for e in entries if e.folder is not None and inside in e.folder.parents]
        return next((path for path in same if not any(store in path.parents for store in outside)), None)

    def beginning(self, experiment: Experiment, past: int = 0) -> Path | None:
        """The directory of the same experiment that can go on from furthest, beyond round ``past``.

        It may have been planned shorter, or longer and broken off, and it may be a record that came with its
        checkpoint.  The last round of a run is evaluated in any case; where this one would not evaluate it, it does not
        count.
        """
        begun = [
            (last_round(entry.folder), len(entry.run.rounds), entry.folder)
            for entry in self._of(experiment)
            if entry.folder is not None
            and len(entry.run.rounds) < experiment.rounds
            and last_round(entry.folder) > past
            and (entry.experiment.rounds % experiment.evaluate_every == 0 or not entry.run.finished)
        ]
        return max(begun, key=lambda found: found[:2])[2] if begun else None

    def _of(self, experiment: Experiment) -> list[Entry]:
        """The runs of an experiment; those from before code was told of may have any code."""
        entries = self._entries.get(trajectory(experiment), ())
        return [entry for entry in entries if entry.experiment.code in ({}, experiment.code)]


def trajectory(experiment: Experiment) -> str:
    """The digest without the number of rounds and without code, which older records do not tell of."""
    return experiment.model_copy(update={"rounds": 1, "code": {}}).digest


def _cut(entry: Entry, experiment: Experiment) -> Found | None:
    wanted, run = experiment.rounds, entry.run
    if entry.experiment.rounds != wanted and wanted % experiment.evaluate_every:
        return None  # the last round is evaluated in any case, and in the longer run it is not the last
    if run.planned_rounds == wanted:
        return Found(run, wanted, run)
    rounds = tuple(r for r in run.rounds if r.round <= wanted)
    return Found(replace(run, experiment={**run.experiment, "rounds": wanted}, rounds=rounds), wanted, run)
