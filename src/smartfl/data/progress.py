"""How a download reports its progress: not at all, or as a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

Bar = Any
"""What pooch asks of a progress bar: a ``total`` to set, and ``update(n)``, ``reset()``, ``close()``."""

Progress = Callable[[str], AbstractContextManager[Bar | Literal[False]]]
"""Given a file's name, a context whose value is a bar, or False for none."""


@contextmanager
def silent(file: str) -> Iterator[Literal[False]]:
    """No progress."""
    yield False


class _RichBar:
    """pooch's idea of a progress bar, drawn by rich."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        self._progress.update(self._task, total=value)

    def update(self, n: int) -> None:
        self._progress.advance(self._task, n)

    def reset(self) -> None:
        self._progress.reset(self._task, total=self._total)

    def close(self) -> None:
        self._progress.refresh()


@contextmanager
def bar(file: str) -> Iterator[_RichBar]:
    """A bar with size, speed and remaining time on stderr; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with RichProgress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        yield _RichBar(progress, progress.add_task(file, total=None))
