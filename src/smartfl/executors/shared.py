"""Shared memory, of which a container may have little."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from torch import Tensor

from smartfl.errors import UserError

SEGMENTS = Path("/dev/shm")


class Shareable(Protocol):
    """Something with tensors in it."""

    def share_memory_(self) -> Shareable: ...


T = TypeVar("T", bound=Shareable)


def share(thing: T) -> T:
    """``thing`` in shared memory; where there is too little of it one sentence says so, and nothing is left there."""
    need, free = shared_bytes(thing), _free()
    if free is not None and need > free:
        raise UserError(_too_little(need, free))
    try:
        thing.share_memory_()
    except RuntimeError as error:
        for leaked in SEGMENTS.glob(f"torch_{os.getpid()}_*"):  # torch keeps the name of what it could not fill
            with suppress(OSError):
                leaked.unlink()
        if "shared memory" not in str(error):
            raise
        raise UserError(_too_little(need, _free() or 0)) from error
    return thing


def shared_bytes(thing: object) -> int:
    """The bytes of all tensors in a dataclass that are not in shared memory yet, each storage once."""
    found: dict[int, int] = {}

    def walk(value: object) -> None:
        if isinstance(value, Tensor):
            if not value.is_shared():
                found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif is_dataclass(value):
            for f in fields(value):
                walk(getattr(value, f.name))

    walk(thing)
    return sum(found.values())


def _free() -> int | None:
    """What is left for shared memory; None where nobody knows."""
    try:
        found = os.statvfs(SEGMENTS)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def _too_little(need: int, free: int) -> str:
    return (
        f"worker processes need {need / 1e6:.1f} MB of shared memory and /dev/shm has {free / 1e6:.1f} MB left: "
        "make it larger (docker run --shm-size=1g) or pass --executor serial, which gives the same result"
    )
