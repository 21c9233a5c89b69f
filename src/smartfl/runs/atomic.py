"""Writes that happen whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: a reader sees the old file or the new one, never half of it."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_text(path: Path, content: str) -> None:
    """``write_bytes`` for text."""
    write_bytes(path, content.encode("utf-8"))


def append_line(path: Path, line: str) -> None:
    """Append one line and make sure it is on disk; a kill may leave half a line, which resuming cuts off."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
