"""The run directory: what a run leaves on disk, and how it is taken up again."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
from filelock import FileLock, Timeout
from torch import Tensor

from smartfl.errors import InUse, RecordsError, UserError
from smartfl.experiment.files import read_experiment, write_experiment
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.records.store import MARKER
from smartfl.runs.atomic import append_line, write_bytes, write_text
from smartfl.runs.checkpoint import load_checkpoint, remove_checkpoints, save_checkpoint, saved_checkpoints
from smartfl.runs.lines import keep_lines, whole_lines
from smartfl.runs.marker import CLEARING, OURS, is_ours
from smartfl.state import State

log = logging.getLogger(__name__)

LINES = ("rounds.jsonl", "coefficients.jsonl")
ALL_REFUSED = "every client was refused in every round: the model is the one that the run began with"
MOST_BYTES = 1 << 24  # of environment.json and result.json
FILES = (*LINES, "environment.json", "result.json", "model.safetensors", "experiment.toml")


class RunDirectory:
    """``<root>/<name>-<digest>/``: experiment.toml, environment.json, rounds.jsonl, coefficients.jsonl, checkpoints/.

    A finished run also has result.json and the global model as model.safetensors.  Opening takes a lock, so that two
    processes never write into one run.  A marker says that the directory is ours: nothing is removed without it.
    """

    def __init__(self, path: Path, experiment: Experiment, owner: str | None = None) -> None:
        self.path, self.experiment = path, experiment
        self.owner = owner or experiment.trajectory  # a checkpoint of another owner does not count
        self._lock: FileLock | None = None

    @classmethod
    def open(
        cls, path: Path, experiment: Experiment, resume: bool = False, fresh: bool = False, owner: str | None = None
    ) -> RunDirectory:
        """Create the directory, or take up the run in it (``resume``), or throw that run away (``fresh``)."""
        run = cls(path, experiment, owner)
        existing = path / "experiment.toml"
        if path.exists() and not path.is_dir():
            raise UserError(f"the run directory '{path}' is a file")
        if not is_ours(path):
            raise UserError(f"the run directory '{path}' holds other files and is no run of ours: choose another --out")
        if existing.exists() and not (resume or fresh):
            raise UserError(f"the run directory '{path}' holds a run already: pass --resume, --fresh or another --out")
        if existing.exists() and resume:
            found = read_experiment(existing)
            if not _same(found, experiment):
                raise UserError(
                    f"the run in '{path}' has another experiment ({_difference(found, experiment)}): "
                    "resume with the same settings or choose another --out"
                )
        try:
            path.mkdir(parents=True, exist_ok=True)
            run._take_lock()
            try:
                run._prepare(fresh)
            except BaseException:
                run.close()
                raise
        except OSError as error:
            raise UserError(f"the run directory '{path}' cannot be written: {error.strerror or error}") from error
        return run

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def restore(self) -> State | None:
        """The state to go on from; records of later rounds (written before their checkpoint) are cut off."""
        files = [self.path / name for name in LINES]
        whole = min(len(whole_lines(file)) if file.exists() else 0 for file in files)
        begun = max(file.read_bytes().count(b"\n") if file.exists() else 0 for file in files)
        # A checkpoint ahead of its records (a disk that lost the last line) would leave a gap in them.
        state = load_checkpoint(self.path / "checkpoints", self.owner, newest=whole)
        every = read_experiment(self.path / "experiment.toml").checkpoint_every
        due = max(0, begun - 1) // every * every  # the line of the round after it was written later than a checkpoint
        if state is None:
            self._check_restart(begun, whole, due)
        elif state.round < due:
            log.warning("the run in '%s' goes on after round %d; later rounds are run again", self.path, state.round)
        for file in files:
            keep_lines(file, 0 if state is None else state.round)
        return state

    def _check_restart(self, begun: int, whole: int, due: int) -> None:
        """Hours of work must not be thrown away without a word."""
        remedy = "--fresh (or removing the directory) throws its records away and runs it again from the start"
        if saved := saved_checkpoints(self.path / "checkpoints"):
            raise UserError(
                f"none of the {len(saved)} checkpoints in '{self.path}' is whole and has its records, "
                f"which are whole up to round {whole}; {remedy}"
            )
        if due:
            raise UserError(
                f"the run in '{self.path}' has records of {begun} rounds but no checkpoint, and one was due after "
                f"round {due}: put its directory 'checkpoints' back; {remedy}"
            )
        if begun:
            log.warning("the run in '%s' had no checkpoint after %d rounds: it starts again", self.path, begun)

    def write_environment(self, found: dict[str, Any], goes_on: bool) -> None:
        """Where the run takes place; if it goes on, the other revisions that computed earlier rounds stay on record."""
        file = self.path / "environment.json"
        if goes_on and (before := read_table(file)):
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
            save_checkpoint(self.path / "checkpoints", state, self.owner)

    def finish(self, state: State, specs: list[FlatSpec]) -> Result:
        """Write the result and the global model; result.json comes last, as it is what makes the run finished."""
        rounds = state.round  # fewer than planned, if a callback has stopped the run
        for name in LINES:
            if (whole := len(whole_lines(self.path / name))) < rounds:
                raise RecordsError(
                    f"'{self.path / name}' is whole up to round {whole} of {rounds} only: something else changed it "
                    "during the run; --resume says what can be done"
                )
            keep_lines(self.path / name, rounds)
        lines = whole_lines(self.path / "rounds.jsonl")
        accuracies = [a for line in lines if (a := line.get("accuracy")) is not None]
        result = Result.of(accuracies, rounds)
        sent = whole_lines(self.path / "coefficients.jsonl")
        refused = [
            {d["id"] for d in line.get("dropped", ())} for line in lines
        ]  # records in git leave out what is empty
        if all(set(there.get("ids", ())) <= out for there, out in zip(sent, refused, strict=True)):
            result = replace(result, warnings=(ALL_REFUSED,))
            log.warning("the run in '%s': %s", self.path, ALL_REFUSED)
        tensors: dict[str, Tensor] = {}
        for g, (spec, vector) in enumerate(zip(specs, state.vectors, strict=True)):
            prefix = f"model{g}." if len(specs) > 1 else ""
            named = spec.unflatten(vector.cpu())
            tensors |= {prefix + name: value.clone() for name, value in named.items()}
        write_bytes(self.path / "model.safetensors", safetensors.torch.save(tensors))
        write_text(self.path / "result.json", json.dumps(result.table(), indent=1))
        return result

    def result(self) -> Result | None:
        """The result of a finished run; None where there is none, or where it cannot be read and is made again."""
        with suppress(TypeError):
            if found := read_table(self.path / "result.json"):
                return Result(**{**found, "warnings": tuple(found.get("warnings", ()))})
        return None

    def _take_lock(self) -> None:
        self._lock = FileLock(self.path / "lock", thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise InUse(f"the run directory '{self.path}' is in use by another process") from None

    def _prepare(self, fresh: bool) -> None:
        """Marker and experiment.toml; what a kill left half-written or half-removed goes."""
        marker, existing = self.path / MARKER, self.path / "experiment.toml"
        for name in (*FILES, MARKER):
            (self.path / f".{name}.part").unlink(missing_ok=True)
        if fresh or (marker.exists() and marker.read_bytes() == CLEARING):
            write_bytes(marker, CLEARING)
            remove_checkpoints(self.path / "checkpoints")
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
        if not marker.exists() or marker.read_bytes() != OURS:
            write_bytes(marker, OURS)
        if not existing.exists():
            write_text(existing, write_experiment(self.experiment))


def read_table(path: Path) -> dict[str, Any]:
    """The table in a small JSON file; empty where there is none or it cannot be read."""
    try:
        found = json.loads(path.read_bytes()) if path.stat().st_size < MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _same(found: Experiment, wanted: Experiment) -> bool:
    """Whether two experiments have the same rounds; a run from before code was told of may have any code."""
    return found.digest == (wanted if found.code else wanted.model_copy(update={"code": {}})).digest


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
