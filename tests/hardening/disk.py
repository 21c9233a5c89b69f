"""A disk on which one operation fails: by a kill, a torn write, lost entries, ENOSPC or EIO.

Every operation below a directory is counted: opening to write, writing, fsync of a file or a directory, replacing,
removing, making a directory.  What a process does after it was killed does not reach the disk.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

KINDS = ("kill", "torn", "lost", "reordered", "ENOSPC", "EIO")


class Killed(BaseException):
    """The process is no more."""


class Disk:
    """Fails at operation ``at`` (counted from 1; 0 never) in the way ``kind``, once.

    kill     nothing of the operation happens, and nothing after it
    torn     a write puts half of its bytes on the disk; then as kill
    lost     the operation happens and the process ends; then every change of a directory's entries that no fsync of
             that directory followed is undone, and so are bytes of files that no fsync of the file followed
    reordered      as lost, but the operation itself has reached the disk before those that came before it
    ENOSPC, EIO    the operation raises OSError; the process goes on
    """

    def __init__(self, root: Path, kind: str = "kill", at: int = 0) -> None:
        self.root, self.kind, self.at = root, kind, at
        self.count = 0
        self.dead = False
        self._undo: list[tuple[Path, Callable[[], None]]] = []  # the directory or file whose fsync makes it last
        self._handles: dict[int, Path] = {}

    def operation(self, act: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        if self.dead:
            raise Killed
        self.count += 1
        if self.count != self.at:
            return act()
        if self.kind in ("ENOSPC", "EIO"):
            number = getattr(errno, self.kind)
            raise OSError(number, os.strerror(number))
        if self.kind == "torn" and half is not None:
            half()
        if self.kind in ("lost", "reordered"):
            before = len(self._undo)
            with suppress(OSError):
                act()
            for _, undo in reversed(self._undo if self.kind == "lost" else self._undo[:before]):
                undo()
        self.dead = True
        raise Killed

    def ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and self.root in Path(path).parents and Path(path).name != "lock"

    def remember(self, path: Path) -> None:
        """What ``path`` is now, to be put back if its directory is not synced before the power fails."""
        before = path.read_bytes() if path.is_file() else None
        was_there = path.exists()

        def undo() -> None:
            if before is not None:
                _write(path, before)
            elif path.is_dir() and not was_there:
                shutil.rmtree(path)
            elif path.exists() and not was_there:
                path.unlink()

        self._undo.append((path.parent, undo))

    def remember_length(self, path: Path) -> None:
        length = path.stat().st_size

        def undo() -> None:
            if path.is_file():
                os.truncate(path, min(length, path.stat().st_size))

        self._undo.append((path, undo))

    def synced(self, place: Path) -> None:
        self._undo = [(where, undo) for where, undo in self._undo if where != place]

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """Every file operation of this process below the root goes through this disk."""
        saved = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink", "mkdir", "rmdir", "close")}
        open_file = io.open

        def opened(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if not self.ours(path) or mode.strip("bt") == "r":
                return open_file(path, mode, *more, **options)
            path = Path(path)

            def act() -> Any:
                if not path.exists():
                    self.remember(path)
                return open_file(path, mode, *more, **options)

            return _File(self, path, self.operation(act))

        def on_path(name: str) -> Callable[..., Any]:
            def call(path: Any, *more: Any, **options: Any) -> Any:
                if not self.ours(path):
                    return saved[name](path, *more, **options)

                def act() -> Any:
                    for each in (path, *more) if name == "replace" else (path,):
                        self.remember(Path(each))
                    return saved[name](path, *more, **options)

                return self.operation(act)

            return call

        def open_handle(path: Any, *more: Any, **options: Any) -> int:
            handle: int = saved["open"](path, *more, **options)
            self._handles[handle] = Path(path)
            return handle

        def close(handle: int) -> None:
            self._handles.pop(handle, None)
            saved["close"](handle)

        def fsync(handle: int) -> None:
            place = self._handles.get(handle)
            if place is not None and (place == self.root or self.root in place.parents):
                self.operation(lambda: self.synced(place))

        changed = {"open": open_handle, "close": close, "fsync": fsync}
        changed |= {name: on_path(name) for name in ("replace", "unlink", "mkdir", "rmdir")}
        try:
            for name, function in changed.items():
                setattr(os, name, function)
            io.open = opened  # type: ignore[assignment]
            yield self
        finally:
            for name, function in saved.items():
                setattr(os, name, function)
            io.open = open_file


class _File:
    """A file that is written: what Python would keep in a buffer is told to the disk at once."""

    def __init__(self, disk: Disk, path: Path, file: Any) -> None:
        self._disk, self._path, self._file = disk, path, file
        disk._handles[file.fileno()] = path

    def write(self, content: bytes) -> None:
        def put(part: bytes) -> None:
            self._disk.remember_length(self._path)
            self._file.write(part)
            self._file.flush()

        self._disk.operation(lambda: put(content), lambda: put(content[: len(content) // 2]))

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *reason: object) -> None:
        self._disk._handles.pop(self._file.fileno(), None)
        self._file.close()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
