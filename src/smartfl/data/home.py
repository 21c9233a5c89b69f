"""Where datasets lie: the data directory, the folders that are searched, and what to say when nothing is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from smartfl.errors import UserError


def data_home(directory: str | Path | None = None) -> Path:
    """``directory`` if given, else ``$SMARTFL_DATA``, else the platform's user data directory for smartfl."""
    chosen = directory or os.environ.get("SMARTFL_DATA")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("smartfl", appauthor=False)


def cache_home(directory: str | Path | None = None) -> Path:
    """Where decoded arrays are kept: ``$SMARTFL_CACHE``, else ``cache`` under the data directory."""
    chosen = os.environ.get("SMARTFL_CACHE")
    return Path(chosen).expanduser() if chosen else data_home(directory) / "cache"


def complete(folder: Path, files: Sequence[str], suffixes: Sequence[str] = ("",)) -> list[Path] | None:
    """The paths of all ``files`` in ``folder``, each with the first suffix that exists; None if one is missing."""
    found = []
    for file in files:
        path = next((folder / (file + s) for s in suffixes if (folder / (file + s)).is_file()), None)
        if path is None:
            return None
        found.append(path)
    return found


def missing(name: str, files: Iterable[str], looked: Iterable[Path]) -> UserError:
    """The error for a dataset that is nowhere: what was looked for, where, and the command that gets it."""
    places = ", ".join(dict.fromkeys(str(path) for path in looked))
    return UserError(
        f"dataset '{name}' is not there: looked for {', '.join(files)} in {places}; "
        f"get it with `smartfl data fetch {name}`, or set SMARTFL_DATA to the directory that holds it"
    )
