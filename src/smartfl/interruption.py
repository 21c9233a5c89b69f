"""Ctrl-C during a long command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Ctrl-C during a run; typer would swallow KeyboardInterrupt itself."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C into ``Interrupted``."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
