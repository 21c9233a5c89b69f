"""The run directory: what a run leaves on disk, and how it is taken up again."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from smartfl.errors import InUse, UserError
from smartfl.experiment.files import read_experiment, write_experiment
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.records.lines import read_lines
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.records.store import is_run
from smartfl.runs.atomic import append_line, write_bytes, write_text
from smartfl.runs.checkpoint import load_checkpoint, save_checkpoint
from smartfl.state import State


class RunDirectory:
    """``<root>/<name>-<digest>/``: experiment.toml, environment.json, rounds.jsonl, coefficients.jsonl, checkpoints/.

    A finished run also has result.json and the global model as model.safetensors.  Opening takes a lock, so that two
    processes never write into one run.
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path, self.experiment = path, experiment
        self._lock: FileLock | None = None

    @classmethod
    def open(cls, path: Path, experiment: Experiment, resume: bool = False, fresh: bool = False) -> RunDirectory:
        """Create the directory, or take up the run in it (``resume``), or throw that run away (``fresh``)."""
        run = cls(path, experiment)
        existing = path / "experiment.toml"
        if path.exists() and not path.is_dir():
            raise UserError(f"the run directory '{path}' is a file")
        if path.is_dir() and any(path.iterdir()) and not is_run({entry.name for entry in path.iterdir()}):
            raise UserError(f"the run directory '{path}' holds other files and is no run of ours: choose another --out")
        if existing.exists() and not (resume or fresh):
            raise UserError(f"the run directory '{path}' holds a run already: pass --resume, --fresh or another --out")
        if existing.exists() and resume:
            found = read_experiment(existing)
            if found.digest != experiment.digest:
                raise UserError(
                    f"the run in '{path}' has another experiment ({_difference(found, experiment)}): "
                    "resume with the same settings or choose another --out"
                )
        try:
            path.mkdir(parents=True, exist_ok=True)
            run._take_lock()
            if fresh:
                run._clear()
            if not existing.exists():
                write_text(existing, write_experiment(experiment))
        except OSError as error:
            raise UserError(f"the run directory '{path}' cannot be written: {error.strerror or error}") from error
        return run

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def restore(self) -> State | None:
        """The state to go on from; records of later rounds (written before their checkpoint) are cut off."""
        files = [self.path / name for name in ("rounds.jsonl", "coefficients.jsonl")]
        records = [read_lines(file) if file.exists() else [] for file in files]
        # A checkpoint ahead of its records (a disk that lost the last line) would leave a gap in them.
        state = load_checkpoint(self.path / "checkpoints", newest=min(len(lines) for lines in records))
        saved = list((self.path / "checkpoints").glob("round-*.json"))
        if state is None and saved:  # hours of work must not be thrown away without a word
            raise UserError(
                f"none of the {len(saved)} checkpoints in '{self.path}' is whole and has its records; --fresh (or "
                "removing the directory) runs it again from the start"
            )
        done = state.round if state is not None else 0
        for file, lines in zip(files, records, strict=True):
            write_text(file, "".join(json.dumps(line) + "\n" for line in lines[:done]))
        return state

    def write_environment(self, found: dict[str, Any], goes_on: bool) -> None:
        """Where the run takes place; if it goes on, the other revisions that computed earlier rounds stay on record."""
        file = self.path / "environment.json"
        if goes_on and file.exists():
            before = json.loads(file.read_text(encoding="utf-8"))
            revisions = [*before.get("earlier_revisions", ()), before.get("revision"), found["revision"]]
            if earlier := [old for old, new in pairwise(revisions) if old != new]:
                found = {**found, "earlier_revisions": earlier}
        write_text(file, json.dumps(found, indent=1))

    def add(self, record: RoundRecord, state: State) -> None:
        """Log a round; checkpoint when it is due."""
        append_line(self.path / "coefficients.jsonl", json.dumps(record.coefficients_line()))
        append_line(self.path / "rounds.jsonl", json.dumps(record.round_line()))
        every, last = self.experiment.checkpoint_every, self.experiment.rounds
        if record.round % every == 0 or record.round == last:
            save_checkpoint(self.path / "checkpoints", state)

    def finish(self, state: State, specs: list[FlatSpec]) -> Result:
        """Write the result and the global model; result.json comes last, as it is what makes the run finished."""
        lines = read_lines(self.path / "rounds.jsonl")
        accuracies = [a for line in lines if (a := line.get("accuracy")) is not None]
        result = Result.of(accuracies, state.round)
        tensors: dict[str, Tensor] = {}
        for g, (spec, vector) in enumerate(zip(specs, state.vectors, strict=True)):
            prefix = f"model{g}." if len(specs) > 1 else ""
            named = spec.unflatten(vector.cpu())
            tensors |= {prefix + name: value.clone() for name, value in named.items()}
        write_bytes(self.path / "model.safetensors", safetensors.torch.save(tensors))
        write_text(self.path / "result.json", json.dumps(asdict(result), indent=1))
        return result

    def result(self) -> Result:
        """The result of a finished run."""
        return Result(**json.loads((self.path / "result.json").read_text(encoding="utf-8")))

    def _take_lock(self) -> None:
        self._lock = FileLock(self.path / "lock", thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise InUse(f"the run directory '{self.path}' is in use by another process") from None

    def _clear(self) -> None:
        for name in ("rounds.jsonl", "coefficients.jsonl", "environment.json", "result.json", "model.safetensors"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
        (self.path / "experiment.toml").unlink(missing_ok=True)


def _difference(found: Experiment, wanted: Experiment) -> str:
    """The first setting in which two experiments differ."""

    def flat(tables: Any, prefix: str = "") -> dict[str, Any]:
        if not isinstance(tables, dict):
            return {prefix: tables}
        return {k: v for key, sub in tables.items() for k, v in flat(sub, f"{prefix}.{key}" if prefix else key).items()}

    a, b = flat(found.tables()), flat(wanted.tables())
    for key in sorted(a.keys() | b.keys()):
        if key not in ("name", "checkpoint_every") and a.get(key) != b.get(key):
            return f"{key} = {a.get(key)!r} there, {b.get(key)!r} here"
    return "unknown difference"
