"""Freed memory stays with the process."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST = (1 << 30, 1 << 25)  # what new and old glibc accept


def keep_freed_memory() -> None:
    """Let the C library hand freed blocks out again instead of giving their pages back to the system.

    A training step frees and asks for the same activations again and again; glibc returns blocks of megabytes to the
    system, which must then fault in and clear every page anew: a fifth of a ConvNet's step through autograd.  What is
    kept is at most the most that was ever in use.  Does nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for setting in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            any(mallopt(setting, size) for size in _LARGEST)
