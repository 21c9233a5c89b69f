"""How much a file may ask for before anything is reserved for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np

from smartfl.data.cache import Array
from smartfl.errors import UserError

MOST_CLASSES = 100_000


def check_bytes(size: int, where: str) -> None:
    """Refuse what would take more than half of this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 34
    if size > memory // 2:
        raise UserError(f"{where} takes {size / 1e9:.1f} GB, more than half of this machine's memory")


def check_regular(path: Path, what: str) -> None:
    """Refuse what is no regular file: a pipe never ends, and neither does a device."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{what} is no regular file")


def class_count(labels: Array, given: int | None, what: str) -> int:
    """The number of classes of whole-number labels from 0 on: ``given``, else one more than the largest.

    A stray label must not make classes that do not exist: unless the number is given, every class must occur.
    """
    largest = int(labels.max(initial=0))
    if given is not None and not 1 <= given <= MOST_CLASSES:
        raise UserError(f"num_classes = {given}: accepted are 1 … {MOST_CLASSES}")
    if given is not None and largest >= given:
        raise UserError(f"num_classes = {given} is too small: {what} has labels up to {largest}")
    if given is not None:
        return given
    present = np.unique(labels)
    if len(present) <= largest:
        absent = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise UserError(
            f"{what} has labels up to {largest}, but no sample of class {absent}: correct them, or set num_classes if "
            "that is meant"
        )
    if largest >= MOST_CLASSES:
        raise UserError(f"{what} has {largest + 1} classes; at most {MOST_CLASSES} are accepted")
    return largest + 1
