"""Ctrl-C and SIGTERM during a long command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """Ctrl-C or SIGTERM during a run, and the exit status for it; typer would swallow KeyboardInterrupt itself."""

    def __init__(self, how: str = "interrupted", status: int = 128 + signal.SIGINT) -> None:
        super().__init__(how)
        self.status = status


class _Terminated(KeyboardInterrupt):
    """SIGTERM: whatever cleans up behind Ctrl-C does so behind this."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into ``Interrupted``; a second SIGTERM ends the process at once."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if main else None
    try:
        yield
    except _Terminated:
        raise Interrupted("terminated", 128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise _Terminated
