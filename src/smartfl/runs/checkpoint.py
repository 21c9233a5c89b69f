"""Checkpoints: tensors as safetensors, the rest as JSON; nothing on disk is a pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import safetensors.torch

from smartfl.runs.atomic import write_bytes, write_text
from smartfl.state import State

KEEP = 2  # the last checkpoint, and the one before in case the disk lied about the last


def save_checkpoint(directory: Path, state: State) -> None:
    """Write ``round-NNNNNN.safetensors``, then the JSON beside it that makes it count, then drop old ones."""
    directory.mkdir(exist_ok=True)
    stem = f"round-{state.round:06d}"
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.tensors().items()}
    content = safetensors.torch.save(tensors)
    write_bytes(directory / f"{stem}.safetensors", content)
    scalars = state.scalars() | {"sha256": hashlib.sha256(content).hexdigest()}
    write_text(directory / f"{stem}.json", json.dumps(scalars))
    for old in sorted(directory.glob("round-*.json"))[:-KEEP]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def newest_checkpoint(run: Path) -> Path | None:
    """The JSON of the last checkpoint in a run directory; or None."""
    return max((run / "checkpoints").glob("round-*.json"), default=None)


def last_round(run: Path) -> int:
    """The round of the last checkpoint in a run directory; 0 without one."""
    newest = newest_checkpoint(run)
    return 0 if newest is None else int(newest.stem.removeprefix("round-"))


def load_checkpoint(directory: Path, newest: int | None = None) -> State | None:
    """The newest checkpoint, of round ``newest`` at most, whose files are whole; or None."""
    for path in sorted(directory.glob("round-*.json"), reverse=True):
        try:
            scalars = json.loads(path.read_text(encoding="utf-8"))
            content = path.with_suffix(".safetensors").read_bytes()
        except (OSError, ValueError):
            continue
        if not isinstance(scalars, dict) or (newest is not None and scalars.get("round", 0) > newest):
            continue
        if hashlib.sha256(content).hexdigest() == scalars.pop("sha256", None):
            return State.of(safetensors.torch.load(content), scalars)
    return None
