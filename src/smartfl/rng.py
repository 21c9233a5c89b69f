"""A tree of random streams: one per purpose, so that changing one setting never shifts another.

``seed_of(0, "client", 3, 17)`` is the same 63-bit number on every machine, whatever was drawn before it and
however many workers there are.  Nothing here touches the global generators, except ``seeded``, which
puts them back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(seed: int, *path: str | int) -> int:
    """The seed of the stream at ``path`` under ``seed``: the first 63 bits of a BLAKE2b hash."""
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def torch_stream(seed: int, *path: str | int) -> torch.Generator:
    """A CPU torch generator for the stream at ``path``."""
    return torch.Generator().manual_seed(seed_of(seed, *path))


def numpy_stream(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy generator for the stream at ``path``."""
    return np.random.default_rng(seed_of(seed, *path))


@contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Run a block under torch's global generator seeded from ``path``, then restore it.

    For code that cannot be handed a generator: module initialisers and dropout.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, *path))
        yield
