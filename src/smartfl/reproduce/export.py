"""Records small enough for git: what tables and figures need of a run, and what it takes to go on elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from smartfl.errors import UserError
from smartfl.report.run_data import RunData
from smartfl.reproduce.plan import Plan
from smartfl.runs.atomic import write_text
from smartfl.runs.checkpoint import newest_checkpoint
from smartfl.runs.directory import read_lines

DIGITS = 6


def export(plan: Plan, store: Path, checkpoints: bool = False) -> list[Path]:
    """Copy every finished run of ``plan`` that ``store`` has not, or not that far, to ``<store>/<dataset>/<run>``.

    With ``checkpoints`` runs that are only begun are copied too, and each comes with its last checkpoint and the
    clients' weights: from such a record a run goes on on any machine.
    """
    copied = []
    coefficients = plan.study.coefficients or checkpoints
    try:
        for source, dataset in dict.fromkeys(_sources(plan, store, checkpoints)):
            target = store / dataset / source.name
            saved = newest_checkpoint(source) if checkpoints else None
            if _missing(source, target, coefficients, saved):
                _copy(source, target, coefficients, saved)
                copied.append(target)
    except OSError as error:
        raise UserError(f"--export = '{store}' cannot be written: {error.strerror or error}") from error
    return copied


def _sources(plan: Plan, store: Path, begun: bool) -> Iterator[tuple[Path, str]]:
    """The directories and datasets of finished runs, without those that were read from ``store`` itself.

    With ``begun`` also of those that have got to a checkpoint.
    """
    for planned in plan.runs:
        if planned.found is None:
            continue
        source = planned.found.run.path
        wanted = planned.finished or (begun and newest_checkpoint(source) is not None)
        if wanted and store.resolve() not in source.resolve().parents:
            yield source, planned.experiment.data.dataset


def _missing(source: Path, target: Path, coefficients: bool, saved: Path | None) -> bool:
    if not (target / "rounds.jsonl").exists() or (coefficients and not (target / "coefficients.jsonl").exists()):
        return True
    if saved is not None and not (target / "checkpoints" / saved.name).exists():
        return True
    # A run that was exported early may have gone on since.
    return len(read_lines(source / "rounds.jsonl")) > len(read_lines(target / "rounds.jsonl"))


def _copy(source: Path, target: Path, coefficients: bool, saved: Path | None) -> None:
    """rounds.jsonl comes last: its lines say how far the copy is whole.  A run only begun has no result.json."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("experiment.toml", "environment.json"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    if coefficients and (source / "coefficients.jsonl").exists():
        write_text(target / "coefficients.jsonl", _compact(read_lines(source / "coefficients.jsonl")))
    if saved is not None:
        shutil.rmtree(target / "checkpoints", ignore_errors=True)
        (target / "checkpoints").mkdir()
        for file in (saved.with_suffix(".safetensors"), saved):
            shutil.copyfile(file, target / "checkpoints" / file.name)
    run = RunData.read(source)
    if run.finished:
        result = {"final": run.final, "best": run.best, "last_ten": run.last_ten, "rounds": run.rounds[-1].round}
        write_text(target / "result.json", json.dumps(result, indent=1) + "\n")
    write_text(target / "rounds.jsonl", _compact(read_lines(source / "rounds.jsonl")))


def _compact(lines: Iterable[Mapping[str, Any]]) -> str:
    """Six significant digits, no blanks, nothing that is empty."""
    kept = [{k: _short(v) for k, v in line.items() if v not in (None, [], {})} for line in lines]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_short(v) for v in value]
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return value
