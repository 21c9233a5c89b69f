"""Decoded arrays kept as plain .npy beside a manifest of checksums, so that the second load is a read.

    CACHE/<name>-<key>/manifest.json, <array>.npy …

The key is a hash of the source files' paths, sizes and modification times and of the settings that shaped the arrays.
A whole entry appears by one rename, so a reader never sees half of one. Whatever is wrong with an entry (a flipped
bit, a missing file), it is rebuilt; where the directory cannot be written, nothing is cached.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
FORMAT = 1
ABANDONED_SECONDS = 86_400.0
MAPPED_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Decoded:
    """Named arrays."""

    arrays: Mapping[str, Array]

    @cached_property
    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each array's bytes in C order."""
        return {name: hashlib.sha256(np.ascontiguousarray(a).data).hexdigest() for name, a in self.arrays.items()}

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"sha256": self.sha256[name], "dtype": a.dtype.str, "shape": list(a.shape)}
            for name, a in self.arrays.items()
        }


def cached(
    name: str,
    sources: Sequence[Path],
    build: Callable[[], Mapping[str, Array]],
    check: Callable[[Decoded], None],
    directory: Path,
    settings: Mapping[str, Any] | None = None,
) -> Decoded:
    """What ``build()`` makes of the ``sources``, from the cache in ``directory`` if an intact entry is there.

    ``check`` sees the arrays and their checksums either way and raises to refuse them; what it refuses is not kept.
    """
    stamps = [[str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns] for p in sources]
    identity = json.dumps([FORMAT, stamps, settings or {}], sort_keys=True)
    entry = directory / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    decoded = _read(entry)
    if decoded is not None:
        check(decoded)
        return decoded
    decoded = Decoded(build())
    check(decoded)
    _write(entry, decoded, {"sources": stamps, "settings": dict(settings or {})})
    return decoded


def _read(entry: Path) -> Decoded | None:
    """The entry's arrays, or None where it is absent or not what its manifest says."""
    if not entry.is_dir():
        return None
    try:
        expected = json.loads((entry / "manifest.json").read_text())["arrays"]
        decoded = Decoded({name: _load(entry / f"{name}.npy") for name in expected})
    except (OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, RecursionError, AttributeError) as error:
        log.warning("cache entry %s is unreadable (%s) and will be rebuilt", entry, error)
        return None
    if decoded.manifest != expected:
        log.warning("cache entry %s does not match its checksums and will be rebuilt", entry)
        return None
    return decoded


def _load(path: Path) -> Array:
    """The array in a file; a large one is mapped copy-on-write, which costs a third of reading it into new memory."""
    if not path.is_file():
        raise OSError(f"{path} is no regular file")
    large = path.stat().st_size > MAPPED_BYTES
    return np.asarray(np.load(path, mmap_mode="c" if large else None, allow_pickle=False))


def _write(entry: Path, decoded: Decoded, origin: Mapping[str, Any]) -> None:
    """Put the arrays at ``entry`` by one rename; a directory that cannot be written means no caching."""
    draft: Path | None = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=entry.parent))
        for name, array in decoded.arrays.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        (draft / "manifest.json").write_text(json.dumps({**origin, "arrays": decoded.manifest}, indent=1))
        draft.chmod(0o755)
        if entry.exists():
            shutil.rmtree(entry)
        os.rename(draft, entry)
        _prune(entry, origin)
    except OSError as error:
        log.info("nothing is cached in %s: %s", entry.parent, error)
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _prune(entry: Path, origin: Mapping[str, Any]) -> None:
    """Remove entries made from the same paths and settings before those files changed, and abandoned drafts."""

    def identity(of: Mapping[str, Any]) -> str:
        return json.dumps([[s[0] for s in of["sources"]], of["settings"]], sort_keys=True)

    name = entry.name.rpartition("-")[0]
    for other in entry.parent.glob(f"{name}-*"):
        if other == entry or other.name.rpartition("-")[0] != name:
            continue
        try:
            stale = identity(json.loads((other / "manifest.json").read_text())) == identity(origin)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if stale:
            shutil.rmtree(other, ignore_errors=True)
    for draft in entry.parent.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)
