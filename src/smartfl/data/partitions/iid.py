"""Every client a random sample of the whole."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index


def iid(labels: Index, clients: int, rng: np.random.Generator) -> list[Index]:
    """Shuffled samples in ``clients`` parts whose sizes differ by at most one; every sample is used."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]
