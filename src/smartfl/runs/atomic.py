"""Writes that happen whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: a reader sees the old file or the new one, never half of it.

    On return the new file survives a loss of power too: its bytes are on disk, and so is its name.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        with suppress(OSError):  # a full disk is no fuller for what was tried
            part.unlink()
        raise
    sync_directory(path.parent)


def write_text(path: Path, content: str) -> None:
    """``write_bytes`` for text."""
    write_bytes(path, content.encode("utf-8"))


def append_line(path: Path, line: str) -> None:
    """Append one line and make sure it is on disk; a kill may leave half a line, which resuming cuts off."""
    new = not path.exists()
    with path.open("ab") as file:
        file.write(line.encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put a directory's entries on disk; without it a new name may be gone after a loss of power."""
    if os.name == "nt":  # a directory cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
