"""python -m peers PEER FILES ROUNDS RESULT: run one peer in its own process and leave its result as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path


def main(peer: str, files: str, rounds: str, result: str) -> None:
    """The peer is imported under its own name, not run as __main__: Ray's workers import it again."""
    found = import_module(f"peers.{peer}").run(Path(files), int(rounds))
    if found is not None:  # only one of several processes answers
        Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
