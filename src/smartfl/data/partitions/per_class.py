"""The plain Dirichlet partition: per class over all clients."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index, cuts, proportions


def per_class(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    """The samples of every class over the clients by Dir(α·1_n), without balance or retry (after Li et al. 2022).

    Sizes are unequal, and for small α some clients are empty: at α = 0.01 about 29 of 80. Every sample is used.
    """
    shares = proportions(alpha, clients, num_classes, rng)
    owned: list[list[Index]] = [[] for _ in range(clients)]
    for c in range(num_classes):
        members = rng.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, cuts(shares[c], len(members))[1:-1])):
            owned[i].append(part)
    return [np.sort(np.concatenate(parts)) for parts in owned]
