"""FedDF: distil the ensemble of client models into their average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.proxy import (
    client_logits,
    fedavg_start,
    finite_clients,
    global_model_kept,
    require_proxy,
    weights_among,
)
from smartfl.aggregators.server_training import ServerRecipe, finite_or_start, train_on_server
from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class FedDF(Aggregator):
    """The FedAvg model, trained on KL(q ‖ softmax(z/T)) over the unlabelled proxy data, with the teacher

        q(x) = softmax(z̄(x)/T),   z̄ the mean of the clients' logits, every client counting once.

    Lin et al. 2020, "Ensemble distillation for robust model fusion in federated learning". Student in train mode,
    teachers in eval mode and computed once; Adam with the gradient norm clipped at ``clip`` (None: no clipping);
    the last student is returned, as there is no validation set. E_s = 0 is FedAvg. Labels are never read.
    ``server.teacher``, when given, takes the place of the clients' mean logits: that is how groups of different
    architectures share a teacher. Not meant for attacks: pseudo-labels are poisoned too.
    """

    needs_proxy: ClassVar[NeedsProxy] = "unlabelled"

    server_epochs: int = 20
    lr: float = 1e-3
    batch_size: int = 32
    temperature: float = 1.0
    clip: float | None = 5.0

    def __post_init__(self) -> None:
        self._recipe()
        if not self.temperature > 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")

    def _recipe(self) -> ServerRecipe:
        return ServerRecipe(self.server_epochs, self.lr, self.batch_size, clip=self.clip)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        assert server is not None
        if self.server_epochs == 0:
            return weighted(updates, updates.weights)
        if server.teacher is not None:
            start, p, events = fedavg_start(updates, model, proxy.inputs)
            members = server.teacher[None]
        else:
            logits = client_logits(updates, model, proxy.inputs)
            finite, events = finite_clients(updates, logits)
            if not finite.any():
                return global_model_kept(updates, *events, "nobody is left: the global model is kept")
            p = weights_among(updates, finite)
            start, members = updates.mix(p), logits[finite]
        q = teacher_probabilities(members, temperature=self.temperature).to(start)
        if not torch.isfinite(q).all():
            return Aggregate(start, p, events=(*events, "the given teacher is not finite: no distillation"))
        trained = train_on_server(
            model,
            updates.spec,
            start,
            proxy.inputs,
            lambda z, index: distillation_loss(q[index], z, self.temperature),
            self._recipe(),
            server.generator,
        )
        vector, diverged = finite_or_start(trained, start)
        return Aggregate(vector, p, events=(*events, *diverged))
