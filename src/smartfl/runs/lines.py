"""The lines of rounds.jsonl and coefficients.jsonl, a round each, from round 1 on without a gap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smartfl.runs.atomic import write_bytes


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The records of rounds 1, 2, …, up to the first line that is damaged, cut short or of another round."""
    return [record for record, _ in _whole(path)]


def keep_lines(path: Path, count: int) -> int:
    """Cut off what follows the first ``count`` records, if there is anything; returns how many are left."""
    whole = _whole(path)[:count] if path.exists() else []
    kept = b"".join(line + b"\n" for _, line in whole)
    if not path.exists() or path.read_bytes() != kept:
        write_bytes(path, kept)
    return len(whole)


def _whole(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """The records with the bytes of their lines; a last line without an end is not whole."""
    found: list[tuple[dict[str, Any], bytes]] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(record, dict) or record.get("round") != len(found) + 1:
            break
        found.append((record, line))
    return found
