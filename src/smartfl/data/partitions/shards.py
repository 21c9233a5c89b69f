"""The shard partition of the FedAvg paper."""

from __future__ import annotations

import numpy as np

from smartfl.data.partitions.dirichlet import Index
from smartfl.errors import UserError


def shards(labels: Index, clients: int, rng: np.random.Generator, shards_per_client: int = 2) -> list[Index]:
    """Samples sorted by class, cut into n·s shards of sizes that differ by at most one; each client gets s at random.

    McMahan et al. 2017: with s = 2 most clients hold two classes. Every sample is used.
    """
    count = clients * shards_per_client
    if not 1 <= shards_per_client <= len(labels) // clients:
        raise UserError(
            f"shards_per_client = {shards_per_client} is accepted from 1 to {len(labels) // clients} "
            f"({len(labels)} samples for {clients} clients)"
        )
    shuffled = rng.permutation(len(labels))
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], count)
    dealt = rng.permutation(count).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([pieces[s] for s in hand])) for hand in dealt]
