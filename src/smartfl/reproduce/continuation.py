"""A run begins, or goes on, where another of the same experiment has got to."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

from smartfl.errors import InUse
from smartfl.records.lines import read_lines
from smartfl.runs.atomic import write_bytes, write_text
from smartfl.runs.checkpoint import last_round
from smartfl.runs.directory import RunDirectory
from smartfl.runs.grid import Cell


def begin_where(source: Path, cell: Cell) -> None:
    """Give ``cell`` the records and checkpoints of ``source``, the same experiment of whatever length.

    Rounds never depend on how many are planned.  ``source`` stays as it is.  The checkpoints come last, so that a cell
    whose copy was broken off can be given them again; one that is as far by now, or that another process has taken, is
    left alone.
    """
    try:
        run = RunDirectory.open(cell.path, cell.experiment, resume=True)
    except InUse:
        return
    with closing(run):
        if last_round(cell.path) >= last_round(source):
            return
        for name in ("coefficients.jsonl", "rounds.jsonl"):
            lines = read_lines(source / name)
            write_text(cell.path / name, "".join(json.dumps(line) + "\n" for line in lines))
        if (source / "environment.json").exists():  # which revision computed the rounds so far
            shutil.copy(source / "environment.json", cell.path)
        (cell.path / "checkpoints").mkdir(exist_ok=True)
        for saved in sorted((source / "checkpoints").glob("round-*.json")):
            for file in (saved.with_suffix(".safetensors"), saved):
                write_bytes(cell.path / "checkpoints" / file.name, file.read_bytes())
