"""SmartFL-U: optimise the clients' weights on unlabelled samples, with the clients' ensemble as the teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    minibatches,
    require_proxy,
    weights_among,
)
from smartfl.aggregators.simplex_descent import descend
from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class SmartFLUnlabelled(Aggregator):
    """w ← Σ p_i w_i with p = argmin over the simplex of KL(q ‖ softmax z_{w(p)}), q the clients' mean logits' softmax.

    Xie et al., arXiv 2211.05554: FedDF's pseudo-labels and loss, SmartFL's search space.  Adam 5e-4 for 20 epochs moves
    a weight by 0.04 at most, so the result stays near FedAvg by design.  The pseudo-labels are the clients' own and are
    poisoned with them: not meant for attacks.  ``variant`` literal takes the raw gradient, as SmartFL's does.

    With several architectures the teacher is the server's, over the clients of all of them.
    """

    needs_proxy: ClassVar[NeedsProxy] = "unlabelled"
    widens: ClassVar[bool] = True

    variant: Literal["centred", "literal"] = "centred"
    server_epochs: int = 20
    lr: float = 5e-4
    batch_size: int = 32
    temperature: float = 1.0
    batchnorm: BatchNormMode = "mixed"

    def __post_init__(self) -> None:
        if self.server_epochs < 0:
            raise UserError(f"server_epochs = {self.server_epochs} must be at least 0")
        if self.batch_size < 1:
            raise UserError(f"batch_size = {self.batch_size} must be at least 1")
        if not self.lr > 0:
            raise UserError(f"lr = {self.lr} must be above 0")
        if not self.temperature > 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        assert server is not None
        if len(updates) == 1 or self.server_epochs == 0:
            return weighted(updates, updates.weights)
        members = client_logits(updates, model, proxy.inputs)
        keep, events = finite_clients(updates, members)
        if not keep.any():
            return global_model_kept(updates, *events)
        teacher = members[keep] if server.teacher is None else server.teacher[None]
        q = teacher_probabilities(teacher, "avg_logits", self.temperature)
        where = torch.nonzero(keep).flatten().cpu()
        hull = Hull(updates.select(where), model, proxy.inputs, self.batchnorm)

        def loss(logits: Tensor, index: Tensor) -> Tensor:
            return distillation_loss(q[index], logits, self.temperature)

        start = weights_among(updates, keep).cpu()[where]
        found = descend(
            start,
            gradient=lambda p, index: hull.gradient(p, index, loss),
            batches=[minibatches(len(proxy), self.batch_size, 1, server.generator) for _ in range(self.server_epochs)],
            lr=self.lr,
            centre=self.variant != "literal",
        )
        p = torch.zeros(len(updates), dtype=torch.float64).index_copy(0, where, found.p)
        student = distillation_loss(q, hull.logits(found.p), self.temperature)
        info = {"kl": student.item(), "moved": float((found.p - start).abs().sum())}
        return Aggregate(hull.model_at(found.p), p, info, events + found.events)
