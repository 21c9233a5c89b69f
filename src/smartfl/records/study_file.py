"""All runs of a study in one file: JSON lines, compressed by xz.

An environment (machine, versions, revision) is a line of its own, and runs name the one they had::

    {"environment": "1f0c…", "values": {"python": "3.11.7", …}}
    {"run": "digits-krum-0123456789", "digest": "0123456789", "environment": "1f0c…", "settings": {…}, "rounds": {…}}

``rounds`` are columns (``records/columns.py``) of six significant digits.  Lines are sorted: the same runs make the
same file.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from smartfl.digest import digest
from smartfl.errors import UserError
from smartfl.records.columns import from_columns, to_columns
from smartfl.records.run import RunRecord

ENDING = ".jsonl.xz"
DEFAULT = f"runs{ENDING}"  # the name of a study's file in the study's directory


@dataclass(frozen=True)
class StoredRun:
    """A run in a file, of which the rounds are still columns."""

    file: Path
    name: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    columns: Mapping[str, list[Any]]

    @classmethod
    def of(cls, run: RunRecord, cohorts: bool) -> StoredRun:
        """What is kept of ``run``; clients and their weights only with ``cohorts``."""
        return cls(run.path.parent, run.path.name, run.experiment, run.environment, to_columns(run.rounds, cohorts))

    @property
    def done(self) -> int:
        """How many rounds are recorded."""
        return len(self.columns.get("round", ()))

    @property
    def reach(self) -> tuple[int, bool]:
        """Of two records of one experiment that with more says all the other does: rounds, then clients."""
        return self.done, "ids" in self.columns

    @cached_property
    def digest(self) -> str:
        return digest(self.settings)

    @cached_property
    def run(self) -> RunRecord:
        return RunRecord(self.file / self.name, self.settings, self.environment, from_columns(self.columns))


def read_study(file: Path) -> list[StoredRun]:
    """Every run in ``file``."""
    environments: dict[str, Any] = {}
    runs = []
    try:
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for text in lines:
                line = json.loads(text)
                if "values" in line:
                    environments[line["environment"]] = line["values"]
                else:
                    values = environments.get(line["environment"], {})
                    runs.append(StoredRun(file, line["run"], line["settings"], values, line["rounds"]))
    except (OSError, lzma.LZMAError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"'{file}' is not a file of records that smartfl wrote: {error}") from error
    return runs


def merge_study(file: Path, runs: Iterable[StoredRun]) -> list[str]:
    """Add runs to ``file``, which need not exist; returns the names of those that it had not, or not that far.

    Runs with the same digest are one run; the one that reaches further stays.
    """
    kept = {run.digest: run for run in read_study(file)} if file.exists() else {}
    added = []
    for run in runs:
        if (old := kept.get(run.digest)) is None or run.reach > old.reach:
            kept[run.digest] = run
            added.append(run.name)
    if added:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_bytes(lzma.compress(_text(kept.values()).encode(), preset=9 | lzma.PRESET_EXTREME))
        part.replace(file)
    return added


def _text(runs: Iterable[StoredRun]) -> str:
    environments: dict[str, Any] = {}
    lines = []
    for run in sorted(runs, key=lambda run: (run.name, run.digest)):
        key = hashlib.sha256(_json(run.environment).encode()).hexdigest()[:10]
        environments[key] = run.environment
        line = {
            "run": run.name,
            "digest": run.digest,
            "environment": key,
            "settings": run.settings,
            "rounds": run.columns,
        }
        lines.append(_json(line) + "\n")
    first = [_json({"environment": key, "values": environments[key]}) + "\n" for key in sorted(environments)]
    return "".join([*first, *lines])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
