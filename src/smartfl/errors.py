"""What goes wrong, sorted by whose turn it is to act."""

from __future__ import annotations


class UserError(ValueError):
    """A setting that cannot be honoured: one sentence that names it and what is accepted (exit status 2)."""


class InUse(UserError):
    """A run directory that another process works in: a grid leaves it to that process."""


class FetchError(RuntimeError):
    """A download that no mirror gave (exit status 1)."""


class WorkerError(RuntimeError):
    """A worker process failed; the message names the client it was training (exit status 1)."""


class RecordsError(RuntimeError):
    """Records on disk that are no longer what a run wrote there (exit status 1)."""
