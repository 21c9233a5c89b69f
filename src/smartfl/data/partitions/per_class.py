"""The plain Dirichlet partition: per class over all clients."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index, deal, proportions


def per_class(labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int) -> list[Index]:
    """The samples of every class over the clients by Dir(α·1_n), without balance or retry (after Li et al. 2022).

    Sizes are unequal, and for small α some clients are empty: at α = 0.01 about 29 of 80. Every sample is used.
    """
    shares = proportions(alpha, clients, num_classes, rng)
    return deal(labels, shares, rng)
