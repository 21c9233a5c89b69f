"""Checkpoints: tensors as safetensors, the rest as JSON; nothing on disk is a pickle."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from smartfl.errors import UserError
from smartfl.runs.atomic import sync_directory, write_bytes, write_text
from smartfl.state import State

log = logging.getLogger(__name__)

KEEP = 2  # the last checkpoint, and the one before in case the disk lied about the last
FORMAT = 2  # 1 had a checksum of the tensors only, and no owner
OURS = re.compile(r"\.?(round-\d{6,})\.(?:json|safetensors)(?:\.part)?")  # a kill may leave a .part


class _NotWhole(Exception):
    """What is wrong with a checkpoint."""


def save_checkpoint(directory: Path, state: State, owner: str) -> None:
    """Write ``round-NNNNNN.safetensors``, then the JSON beside it that makes it count, then drop old ones.

    ``owner`` says of which experiment it is (``Experiment.trajectory``).  The JSON holds a checksum of the tensors and
    one of everything else in it.
    """
    if not directory.exists():
        directory.mkdir()
        sync_directory(directory.parent)
    stem = f"round-{state.round:06d}"
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.tensors().items()}
    content = safetensors.torch.save(tensors)
    write_bytes(directory / f"{stem}.safetensors", content)
    scalars = state.scalars() | {"format": FORMAT, "experiment": owner, "tensors": hashlib.sha256(content).hexdigest()}
    scalars = json.loads(json.dumps(scalars))  # as it will be read: a number that is a key becomes a string
    write_text(directory / f"{stem}.json", json.dumps(scalars | {"sha256": _checksum(scalars)}))
    kept = {path.stem for path in saved_checkpoints(directory)[-KEEP:]}
    for file in sorted(directory.iterdir()):  # a JSON comes before its tensors: without it they do not count
        ours = OURS.fullmatch(file.name)
        if ours and ours[1] not in kept:
            file.unlink()


def remove_checkpoints(directory: Path) -> None:
    """Remove all checkpoints, and the directory unless something else lies in it."""
    if directory.is_symlink() or not directory.is_dir():
        return
    for file in sorted(directory.iterdir()):
        if OURS.fullmatch(file.name):
            file.unlink()
    sync_directory(directory)
    with suppress(OSError):
        directory.rmdir()


def saved_checkpoints(directory: Path) -> list[Path]:
    """The JSON of every checkpoint, the oldest first; a directory that cannot be read is not an empty one."""
    try:
        return sorted(p for p in directory.iterdir() if p.name.startswith("round-") and p.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"the checkpoints in '{directory}' cannot be read: {error.strerror or error}") from error


def newest_checkpoint(run: Path) -> Path | None:
    """The JSON of the last checkpoint in a run directory; or None."""
    return max(saved_checkpoints(run / "checkpoints"), default=None)


def last_round(run: Path) -> int:
    """The round of the last checkpoint in a run directory; 0 without one."""
    newest = newest_checkpoint(run)
    return 0 if newest is None else _round_of(newest)


def load_checkpoint(directory: Path, owner: str | None = None, newest: int | None = None) -> State | None:
    """The newest checkpoint of ``owner`` (None: anybody's), of round ``newest`` at most, that is whole; or None.

    Why a newer one does not count is said.
    """
    for path in reversed(saved_checkpoints(directory)):
        try:
            if newest is not None and _round_of(path) > newest:
                raise _NotWhole(f"the records end before it, after round {newest}")
            return _read(path, owner)
        except _NotWhole as error:
            log.warning("checkpoint '%s' does not count: %s", path, error)
    return None


def _read(path: Path, owner: str | None) -> State:
    """The state in a checkpoint, if it is whole and of the experiment ``owner``."""
    try:
        scalars = json.loads(path.read_bytes())
        content = path.with_suffix(".safetensors").read_bytes()
    except (OSError, ValueError, RecursionError) as error:
        raise _NotWhole(f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(scalars, dict):
        raise _NotWhole("its JSON is no table")
    expected = scalars.pop("sha256", None)
    tensors = expected
    if scalars.get("format") == FORMAT:
        if expected != _checksum(scalars):
            raise _NotWhole("its JSON does not have the checksum that it names")
        tensors = scalars.get("tensors")
        if owner is not None and scalars.get("experiment") != owner:
            raise _NotWhole("it is of another experiment")
    if hashlib.sha256(content).hexdigest() != tensors:
        raise _NotWhole("its tensors do not have the checksum that is named")
    if scalars.get("round") != _round_of(path):
        raise _NotWhole(f"it says that it is of round {scalars.get('round')}")
    try:
        return State.of(safetensors.torch.load(content), scalars)
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _NotWhole(f"parts of it are missing ({type(error).__name__}: {error})") from error


def _checksum(scalars: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(scalars, sort_keys=True).encode()).hexdigest()


def _round_of(path: Path) -> int:
    """The round in a checkpoint's name; 0 where that is not one of ours."""
    number = path.stem.removeprefix("round-")
    return int(number) if number.isdecimal() else 0
