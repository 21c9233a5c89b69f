"""The Dirichlet partition of Hsu et al.: per client over classes, equal sizes."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from smartfl.data.partitions.dirichlet import Index, proportions


def hsu(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    """Client i draws ⌊N/n⌋ samples without replacement, each from a class chosen by q_i ~ Dir(α·1_C).

    Hsu et al. 2019, with concentration α per class (their own convention, α times a prior that sums to one, is α/C
    per class: pass alpha / C for it). Clients draw one sample each in turn, so that late ones are not starved; a class
    that is used up gets probability 0 for everybody. At most n − 1 samples are left out.
    """
    pools = [rng.permutation(np.flatnonzero(labels == c)).tolist() for c in range(num_classes)]
    preferences = proportions(alpha, num_classes, clients, rng)
    size = len(labels) // clients
    ladders = _ladders(preferences, pools)
    owned: list[list[int]] = [[] for _ in range(clients)]
    for turn in rng.random((size, clients)).tolist():
        for i, u in enumerate(turn):
            ladder = ladders[i]
            chosen = bisect_right(ladder, u * ladder[-1])
            owned[i].append(pools[chosen].pop())
            if not pools[chosen]:
                ladders = _ladders(preferences, pools)
    return [np.sort(np.array(index, dtype=np.int64)) for index in owned]


def _ladders(
    preferences: np.ndarray[tuple[int, ...], np.dtype[np.float64]], pools: list[list[int]]
) -> list[list[float]]:
    """Cumulative preferences of every client over the classes that still have samples."""
    left = np.array([len(pool) for pool in pools], dtype=np.float64)
    shares = preferences * (left > 0)
    sums = shares.sum(axis=1, keepdims=True)
    # A client all of whose share lies in used-up classes takes what is left, in proportion.
    shares = np.where(sums > 0, shares / np.where(sums > 0, sums, 1), left)
    ladders: list[list[float]] = np.cumsum(shares, axis=1).tolist()
    return ladders
