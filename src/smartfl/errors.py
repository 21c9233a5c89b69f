"""What goes wrong, sorted by whose turn it is to act."""

from __future__ import annotations


class UserError(ValueError):
    """A setting that cannot be honoured: one sentence that names it and what is accepted (exit status 2)."""


class WorkerError(RuntimeError):
    """A worker process failed; the message names the client it was training (exit status 1)."""
