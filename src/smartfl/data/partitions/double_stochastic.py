"""FedAUX's Dirichlet partition: per class over clients, balanced until all clients have the same sum of shares."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index, deal, proportions

ROUNDS = 1000  # of balancing; what then differs between clients' sums of shares is rounding


def double_stochastic(
    labels: Index, clients: int, alpha: float, rng: np.random.Generator, num_classes: int
) -> list[Index]:
    """Class c is cut over the clients by row c of a (C, n) matrix: Dir(α·1_n) rows, scaled to equal columns.

    Sattler et al. 2021 (FedAUX), from where the paper has its 80 clients and its values of α: columns and rows are
    normalised in turn (Sinkhorn), so every sample is used, every client's shares of the classes add up to C/n, and
    mixtures stay as peaked as Dir(α·1_C) draws are.  Clients are equally large, up to rounding, where classes are;
    where they are not, whoever has most of a large class is larger.
    """
    shares = proportions(alpha, clients, num_classes, rng)
    shares = np.maximum(shares, np.finfo(np.float64).tiny)  # a client for which every class underflowed has no mixture
    for _ in range(ROUNDS):
        shares /= shares.sum(axis=0, keepdims=True)
        shares /= shares.sum(axis=1, keepdims=True)
    return deal(labels, shares, rng)
