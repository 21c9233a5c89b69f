"""Who holds what in an experiment: drawn from its data settings and its seed."""

from __future__ import annotations

import numpy as np
import torch

from smartfl.attackers import count_attackers
from smartfl.data.dataset import Dataset
from smartfl.data.federation import Federation, Shards
from smartfl.data.partition import partition
from smartfl.data.proxy import split_proxy
from smartfl.errors import UserError
from smartfl.experiment.schema import Experiment
from smartfl.registry import build
from smartfl.rng import numpy_stream
from smartfl.types import NeedsProxy, Proxy


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
    count = count_attackers(experiment.attack.rate, data.clients)
    drawn = numpy_stream(seed, "attackers").choice(data.clients, count, replace=False)
    malicious = frozenset(int(i) for i in drawn)
    return Federation(dataset, Shards.of([rest[part] for part in parts]), proxy, malicious)
