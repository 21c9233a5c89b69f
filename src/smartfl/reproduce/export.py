"""Finished runs as records small enough for git, and runs with what it takes to go on elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from smartfl.errors import UserError
from smartfl.records.lines import read_lines
from smartfl.records.run import RunRecord
from smartfl.records.study_file import DEFAULT, ENDING, StoredRun, merge_study
from smartfl.reproduce.plan import Plan
from smartfl.runs.atomic import write_text
from smartfl.runs.checkpoint import newest_checkpoint


def study_file(store: Path) -> Path:
    """The file of records that ``store`` means: itself, or the one in that directory."""
    return store if store.name.endswith(ENDING) else store / DEFAULT


def export(plan: Plan, store: Path) -> list[str]:
    """Add every finished run of ``plan`` to the file of records of ``store``; the names of those that it had not.

    Clients and their weights come along where a figure of the study needs them.
    """
    found = [planned.found.whole for planned in plan.runs if planned.found is not None and planned.finished]
    inside = store.resolve()
    runs = {run.path: run for run in found if inside not in run.path.resolve().parents}
    try:
        file = study_file(store)
        return merge_study(file, [StoredRun.of(run, plan.study.coefficients) for run in runs.values()])
    except OSError as error:
        raise UserError(f"--export = '{store}' cannot be written: {error.strerror or error}") from error


def export_checkpoints(plan: Plan, store: Path) -> list[Path]:
    """Copy every run of ``plan`` that has a checkpoint to ``<store>/checkpoints``: it goes on on any machine.

    A copy is a run directory with its last checkpoint and the clients' weights, begun or finished.
    """
    copied = []
    inside = study_file(store).parent.resolve()
    try:
        for planned in plan.runs:
            source = None if planned.found is None else planned.found.run.path
            saved = None if source is None else newest_checkpoint(source)
            if source is None or saved is None or inside in source.resolve().parents:
                continue
            target = inside / "checkpoints" / source.name
            if _behind(target, source, saved):
                _copy(source, target, saved)
                copied.append(target)
    except OSError as error:
        raise UserError(f"--export = '{store}' cannot be written: {error.strerror or error}") from error
    return copied


def _behind(target: Path, source: Path, saved: Path) -> bool:
    """Whether ``target`` has not that checkpoint, or fewer rounds: a run that was copied early may have gone on."""
    if not (target / "rounds.jsonl").exists() or not (target / "checkpoints" / saved.name).exists():
        return True
    return len(RunRecord.read(source).rounds) > len(RunRecord.read(target).rounds)


def _copy(source: Path, target: Path, saved: Path) -> None:
    """rounds.jsonl comes last: its lines say how far the copy is whole."""
    shutil.rmtree(target / "checkpoints", ignore_errors=True)
    (target / "checkpoints").mkdir(parents=True)
    for name in ("experiment.toml", "environment.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    for file in (saved.with_suffix(".safetensors"), saved):
        shutil.copyfile(file, target / "checkpoints" / file.name)
    for name in ("coefficients.jsonl", "rounds.jsonl"):
        lines = read_lines(source / name)
        write_text(target / name, "".join(json.dumps(line) + "\n" for line in lines))
