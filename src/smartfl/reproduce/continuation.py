"""A run of more rounds begins where one of fewer has got to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from smartfl.experiment.files import write_experiment
from smartfl.runs.atomic import write_text
from smartfl.runs.directory import read_lines
from smartfl.runs.grid import Cell


def begin_where(source: Path, cell: Cell) -> None:
    """Give ``cell`` the records and checkpoints of ``source``, the same experiment with fewer rounds so far.

    Rounds never depend on how many are planned.  ``source`` stays as it is; the copy appears whole or not at all.
    """
    part = cell.path.with_name(f"{cell.path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source / "checkpoints", part / "checkpoints")
    for name in ("rounds.jsonl", "coefficients.jsonl"):
        lines = read_lines(source / name)
        write_text(part / name, "".join(json.dumps(line) + "\n" for line in lines))
    if (source / "environment.json").exists():  # which revision computed the rounds so far
        shutil.copy(source / "environment.json", part)
    write_text(part / "experiment.toml", write_experiment(cell.experiment))
    part.rename(cell.path)
