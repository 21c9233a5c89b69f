"""The Dirichlet partition of FedDF's experiments: per class over blocks of ten clients."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index, cuts, proportions
from smartfl.errors import UserError

BLOCK = 10
ATTEMPTS = 200_000
AT_ONCE = 64


def feddf(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    """Exact FedDF (Lin et al. 2020): ``feddf_blocks``, concatenated and re-cut into slices of ⌊N/n⌋.

    All clients are equal-sized; slice borders mix neighbours; at most n − 1 samples are left out at the end.
    """
    line = np.concatenate(_blocks(labels, clients, alpha, rng, num_classes))
    size = len(labels) // clients
    return [np.sort(line[i * size : (i + 1) * size]) for i in range(clients)]


def feddf_blocks(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    """FedDF before its re-cut: shuffled data in blocks of ten clients, inside each block every class over the
    clients by Dir(α·1).

    A client that already holds its share of the block gets nothing more (the balance trick), and the block is
    redrawn until every client has at least half the mean size. When ``clients`` is no multiple of ten the last block
    is smaller and has the rest of the data, as in FedDF; fewer than ten clients are one block. Every sample is used.
    """
    return [np.sort(index) for index in _blocks(labels, clients, alpha, rng, num_classes)]


def _blocks(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    shuffled = rng.permutation(len(labels))
    per_block = BLOCK * len(labels) // clients
    owned: list[Index] = []
    for first in range(0, clients, BLOCK):
        start = first // BLOCK * per_block
        last = first + BLOCK >= clients
        block = shuffled[start:] if last else shuffled[start : start + per_block]
        by_class = [block[labels[block] == c] for c in range(num_classes)]
        bounds = _bounds([len(members) for members in by_class], min(BLOCK, clients - first), alpha, rng)
        for i in range(min(BLOCK, clients - first)):
            parts = [members[b[i] : b[i + 1]] for members, b in zip(by_class, bounds, strict=True)]
            owned.append(np.concatenate(parts))
    return owned


def _bounds(totals: list[int], clients: int, alpha: float, rng: np.random.Generator) -> Index:
    """(C, clients + 1) where to cut each class of a block: the first attempt in which everybody has enough.

    Attempts are independent, so they are made by the dozen at once: at α = 0.01 hundreds are needed.
    """
    fair = sum(totals) / clients
    for _ in range(0, ATTEMPTS, AT_ONCE):
        drawn = proportions(alpha, clients, (AT_ONCE, len(totals)), rng)
        held = np.zeros((AT_ONCE, clients), dtype=np.int64)
        bounds = np.zeros((AT_ONCE, len(totals), clients + 1), dtype=np.int64)
        valid = np.ones(AT_ONCE, dtype=bool)
        for c, total in enumerate(totals):
            if total == 0:
                continue
            open_shares = drawn[:, c] * (held < fair)
            sums = open_shares.sum(axis=1, keepdims=True)
            # Where every client still open drew a share that underflowed to 0, 0/0 has no meaning: a new attempt.
            valid &= sums[:, 0] > 0
            bounds[:, c] = cuts(open_shares / np.where(sums > 0, sums, 1), total)
            held += np.diff(bounds[:, c], axis=1)
        valid &= held.min(axis=1) >= int(0.5 * fair)
        if valid.any():
            found: Index = bounds[valid.argmax()]
            return found
    raise UserError(
        f"alpha = {alpha} left a client with less than half the mean size in all of {ATTEMPTS:,} attempts for "
        f"{clients} clients and {sum(t > 0 for t in totals)} classes; a larger alpha, or partition 'hsu', is accepted"
    )
