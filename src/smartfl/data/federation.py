"""Who holds what: the dataset, every client's shard, the server's proxy samples, the compromised clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from smartfl.data.dataset import Dataset
from smartfl.types import Proxy


@dataclass(frozen=True, eq=False)
class Shards:
    """Which training samples each client owns: ``index[starts[i] : starts[i + 1]]``, compact and shareable."""

    index: Tensor
    starts: Tensor

    @classmethod
    def of(cls, parts: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> Shards:
        sizes = torch.tensor([0, *(len(part) for part in parts)])
        return cls(torch.from_numpy(np.concatenate(parts).astype(np.int64)), sizes.cumsum(0))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, client: int) -> Tensor:
        return self.index[int(self.starts[client]) : int(self.starts[client + 1])]

    @property
    def sizes(self) -> Tensor:
        return self.starts.diff()

    def share_memory_(self) -> Shards:
        self.index.share_memory_()
        self.starts.share_memory_()
        return self


@dataclass(frozen=True, eq=False)
class Federation:
    """The data side of an experiment.

    proxy       the server's samples, labels included; None when the rule needs none
    malicious   ids of the compromised clients (those drawn per round: the pool their data knowledge comes from)
    """

    dataset: Dataset
    shards: Shards
    proxy: Proxy | None
    malicious: frozenset[int]

    @cached_property
    def eligible(self) -> list[int]:
        """Clients that own at least one sample; the others keep their ids and never take part."""
        return torch.nonzero(self.shards.sizes).flatten().tolist()

    def samples_of(self, clients: frozenset[int], most: int, rng: np.random.Generator) -> Proxy | None:
        """Up to ``most`` labelled samples of these clients."""
        owned = [self.shards[c] for c in sorted(clients)]
        index = torch.cat(owned) if owned else torch.empty(0, dtype=torch.int64)
        if len(index) == 0:
            return None
        chosen = index[torch.from_numpy(rng.permutation(len(index))[:most])]
        return Proxy(self.dataset.train[chosen], self.dataset.train_labels[chosen], self.dataset.num_classes)
