"""Finetuning: FedAvg, then ordinary training on the proxy data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.proxy import fedavg_start, labels_of, require_proxy
from smartfl.aggregators.server_training import ServerRecipe, finite_or_start, train_on_server
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class Finetune(Aggregator):
    """The FedAvg model, trained for E_s epochs on cross-entropy over the labelled proxy data with Adam.

    Train mode over all parameters, so BatchNorm statistics drift to the proxy data. E_s = 0 is FedAvg. The coefficients
    are those of the average at the start. A client enters with its FedAvg weight whatever it sent: training on a
    hundred samples repairs mild damage only.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    server_epochs: int = 1
    lr: float = 1e-3
    batch_size: int = 32

    def __post_init__(self) -> None:
        self._recipe()

    def _recipe(self) -> ServerRecipe:
        return ServerRecipe(self.server_epochs, self.lr, self.batch_size)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        if self.server_epochs == 0:
            return weighted(updates, updates.weights)
        labels = labels_of(proxy)
        start, p, events = fedavg_start(updates, model, proxy.inputs)
        trained = train_on_server(
            model,
            updates.spec,
            start,
            proxy.inputs,
            lambda logits, index: F.cross_entropy(logits, labels[index]),
            self._recipe(),
            server.generator,
        )
        vector, diverged = finite_or_start(trained, start)
        return Aggregate(vector, p, events=(*events, *diverged))

    def tolerates(self, n: int) -> int | None:
        return None
