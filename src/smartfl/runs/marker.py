"""The marker of a run directory: what lies beside it may be removed by --fresh, and nothing else may."""

from __future__ import annotations

import json
from pathlib import Path

from smartfl.errors import UserError
from smartfl.records.store import MARKER

OURS = b"A run directory of smartfl; --fresh removes what a run wrote here.\n"
CLEARING = b"A run directory of smartfl; --fresh is removing the run in it.\n"


def is_ours(path: Path) -> bool:
    """Whether a run may be written to ``path``: it is absent, empty, or bears our marker.

    Runs from before there was a marker are known by environment.json, which names our version.
    """
    try:
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if names <= {"lock", f".{MARKER}.part"}:  # killed before the marker was there
            return True
        if MARKER in names:
            return (path / MARKER).read_bytes() in (OURS, CLEARING)
        found = json.loads((path / "environment.json").read_bytes())
        return "experiment.toml" in names and "smartfl" in found["packages"]
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"the run directory '{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
