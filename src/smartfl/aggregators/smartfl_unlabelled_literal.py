"""SmartFL-U to the letter: Xie et al., arXiv 2211.05554, without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.overflow import on_finite_clients
from smartfl.aggregators.proxy import client_logits, finite_clients, minibatches, require_proxy
from smartfl.aggregators.simplex_descent import check_search
from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities
from smartfl.errors import UserError
from smartfl.optimizers import FlatAdam
from smartfl.simplex import project_simplex
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class SmartFLUnlabelledLiteral(Aggregator):
    """w ← Σ p_i w_i with p = argmin over the simplex of KL(q ‖ softmax z_{w(p)}) on the unlabelled proxy samples.

    q = softmax(mean of the clients' logits / T) are FedDF's pseudo-labels (Lin et al. 2020); with several architectures
    the mean is over the clients of all.  The search is ``SmartFLLiteral``'s with Adam at 5e-4, which moves a weight by
    0.04 at most in 20 epochs of 4 mini-batches: it stays near FedAvg by design, and is not meant for attacks.
    """

    needs_proxy: ClassVar[NeedsProxy] = "unlabelled"
    widens: ClassVar[bool] = True

    server_epochs: int = 20
    lr: float = 5e-4
    batch_size: int = 32
    temperature: float = 1.0
    batchnorm: BatchNormMode = "mixed"

    def __post_init__(self) -> None:
        check_search(self.server_epochs, self.batch_size, self.lr)
        if not self.temperature > 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        assert server is not None
        if len(updates) == 1 or self.server_epochs == 0:
            return weighted(updates, updates.weights)
        given, generator = server.teacher, server.generator

        def search(among: Updates, hull: Hull) -> Aggregate | None:
            members = client_logits(among, model, proxy.inputs) if given is None else given[None]
            if not finite_clients(among, members)[0].all():
                return None
            q = teacher_probabilities(members, "avg_logits", self.temperature)

            def loss(logits: Tensor, index: Tensor) -> Tensor:
                return distillation_loss(q[index], logits, self.temperature)

            start = among.weights.cpu()
            p, adam = start.clone(), FlatAdam(self.lr)
            for index in minibatches(len(proxy), self.batch_size, self.server_epochs, generator):
                _, gradient = hull.gradient(p, index, loss)
                if not torch.isfinite(gradient).all():
                    return None
                adam.step(p, gradient)
                p = project_simplex(p)
            vector, logits = hull.result(p)
            if not torch.isfinite(logits).all():
                return None
            kl = float(distillation_loss(q, hull.logits(p), self.temperature))
            return Aggregate(vector, p, {"kl": kl, "moved": float((p - start).abs().sum())})

        return on_finite_clients(search, updates, lambda among: Hull(among, model, proxy.inputs, self.batchnorm))

    def tolerates(self, n: int) -> int | None:
        return None
