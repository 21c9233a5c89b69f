"""Who holds what: the dataset, every client's shard, the server's proxy samples, the compromised clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from smartfl.data.dataset import Dataset
from smartfl.data.partition import partition
from smartfl.data.proxy import split_proxy
from smartfl.errors import UserError
from smartfl.experiment.schema import Experiment
from smartfl.registry import build
from smartfl.rng import numpy_stream
from smartfl.types import NeedsProxy, Proxy


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


def load_dataset(experiment: Experiment) -> Dataset:
    """The experiment's dataset."""
    data = experiment.data
    dataset: Dataset = build("datasets", data.dataset, data.options, "data.options", key="data.dataset")
    return dataset


def build_federation(experiment: Experiment, needs_proxy: NeedsProxy, dataset: Dataset | None = None) -> Federation:
    """Draw the proxy samples, partition the rest over the clients, and choose who is compromised.

    Each has a stream of its own.  A rule without proxy data leaves all samples to the clients, as in the paper, unless
    ``data.proxy.held_out`` is "always".
    """
    data, seed = experiment.data, experiment.seed
    dataset = dataset or load_dataset(experiment)
    labels = dataset.train_labels.numpy()
    rest = np.arange(len(labels))
    proxy = None
    if data.proxy.size and (needs_proxy != "no" or data.proxy.held_out == "always"):
        rng = numpy_stream(seed, "proxy")
        want = data.proxy
        chosen, rest = split_proxy(labels, want.size, want.imbalance, rng, dataset.num_classes, want.missing)
        index = torch.from_numpy(chosen)
        proxy = Proxy(dataset.train[index], dataset.train_labels[index], dataset.num_classes)
    if data.clients > len(rest):
        raise UserError(f"data.clients = {data.clients} is more than the {len(rest)} samples there are to share")
    settings = {"alpha": data.alpha, "shards_per_client": data.shards_per_client}
    rng = numpy_stream(seed, "partition")
    parts = partition(data.partition, labels[rest], data.clients, rng, dataset.num_classes, settings)
    count = round(experiment.attack.rate * data.clients)
    drawn = numpy_stream(seed, "attackers").choice(data.clients, count, replace=False)
    malicious = frozenset(int(i) for i in drawn)
    return Federation(dataset, Shards.of([rest[part] for part in parts]), proxy, malicious)
