"""A worker ends when the process that started it does."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import forkserver

_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def end_with_parent() -> None:
    """End this process when its parent does, whatever it is at; an orphan would hold memory, cores and a run's lock.

    A thread waits for the parent.  On Linux the kernel does it too, which also ends a process that is stopped or that
    never gives the interpreter back: it sends SIGKILL when the fork server ends, and that ends with the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform.startswith("linux"):
        _let_fork_server_end()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _let_fork_server_end() -> None:
    """Close our copy of the pipe that keeps the fork server up, so that a stopped worker does not keep it.

    multiprocessing gives it to every process, in case that wants to start others; ours never do.
    """
    server = getattr(forkserver, "_forkserver", None)
    handle = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and handle is not None:
        server._forkserver_alive_fd = None
        os.close(handle)
