"""What identifies an experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

IDENTITY = frozenset({"name", "checkpoint_every"})  # settings that never change a result


def digest(tables: Mapping[str, Any]) -> str:
    """Ten hex digits that change with any setting that decides a result, and with no other."""
    decisive = {key: value for key, value in tables.items() if key not in IDENTITY}
    if "warn_after" in decisive.get("client", {}):  # when a slow client is named
        decisive["client"] = {key: value for key, value in decisive["client"].items() if key != "warn_after"}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
