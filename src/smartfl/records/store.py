"""Where runs are found: directories of runs and files of records below some directory."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from smartfl.records.run import RunRecord, read_settings
from smartfl.records.study_file import ENDING, StoredRun, read_study

MARKER = ".smartfl-run"  # a file in every run directory: what lies beside it was written by a run


@dataclass(frozen=True)
class RunFolder:
    """A run directory, of which nothing is read before it is asked for."""

    path: Path

    @cached_property
    def settings(self) -> dict[str, Any]:
        return read_settings(self.path / "experiment.toml")

    @cached_property
    def run(self) -> RunRecord:
        return RunRecord.read(self.path)


def find_runs(roots: Iterable[Path]) -> Iterator[RunFolder | StoredRun]:
    """Every run in and under ``roots``, directories or files of records, each once."""
    places = dict.fromkeys(place.resolve() for root in roots for place in _places(root))
    for place in places:
        yield from read_study(place) if place.is_file() else [RunFolder(place)]


def read_runs(path: Path) -> list[RunRecord]:
    """The runs of a file of records, of all such files in a directory, or the one of a run directory."""
    if path.is_dir() and not (path / "experiment.toml").exists():
        files = sorted(path.glob(f"*{ENDING}"))
    else:
        files = [path] if path.name.endswith(ENDING) else []
    return [stored.run for file in files for stored in read_study(file)] or [RunRecord.read(path)]


def is_run(names: Container[str]) -> bool:
    """Whether a directory with files of these names may be read as a run; ``runs.is_ours`` is for writing."""
    return MARKER in names or "lock" in names or ("experiment.toml" in names and "rounds.jsonl" in names)


def _places(root: Path) -> Iterator[Path]:
    """Run directories and files of records; nothing below a run directory is looked at."""
    if root.is_file():
        yield root
    for folder, inner, names in os.walk(root):
        inner.sort()
        if "experiment.toml" in names and is_run(names):
            inner.clear()
            yield Path(folder)
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(ENDING))
