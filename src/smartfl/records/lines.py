"""JSON lines: the one reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smartfl.errors import UserError


def read_lines(path: Path, refuse: bool = False) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file up to the first that is broken; a last line is, if a kill cut it short.

    With ``refuse`` a broken line that is not the last is a mistake that is named.
    """
    texts = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    filled = [(number, text) for number, text in enumerate(texts, 1) if text.strip()]
    lines: list[dict[str, Any]] = []
    for position, (number, text) in enumerate(filled, 1):
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError("not a table")
        except ValueError as error:
            if refuse and position < len(filled):
                raise UserError(f"{path} line {number} is not a record of a round ({error})") from error
            break
        lines.append(line)
    return lines
