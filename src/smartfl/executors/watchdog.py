"""Says what a process has been at for too long."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)

TICK = 0.5  # seconds


def too_long(what: str, seconds: float, process: int | None = None) -> str:
    """The warning about work that has not ended."""
    where = "" if process is None else f" (process {process})"
    return f"{what} has not answered for {seconds:.0f} s{where}; client.timeout leaves such clients out of their round"


class Watchdog:
    """Warns once of every piece of work that takes longer than ``seconds``; for work in this process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at: tuple[str, float] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, what: str) -> None:
        self._at = what, time.monotonic()

    def end(self) -> None:
        self._at = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        told = None
        while not self._stop.wait(TICK):
            at = self._at
            if at is not None and at is not told and time.monotonic() - at[1] > self._seconds:
                told = at
                log.warning(too_long(at[0], self._seconds))
