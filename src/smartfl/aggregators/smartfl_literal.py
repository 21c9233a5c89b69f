"""SmartFL to the letter: Xie et al., arXiv 2211.05554, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.overflow import on_finite_clients
from smartfl.aggregators.proxy import labels_of, minibatches, require_proxy
from smartfl.aggregators.simplex_descent import check_search
from smartfl.optimizers import FlatAdam
from smartfl.simplex import project_simplex
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class SmartFLLiteral(Aggregator):
    """w ← Σ p_i w_i with p = argmin over the simplex of the cross-entropy of Σ p_i w_i on the proxy samples.

    p starts at the FedAvg weights.  For every mini-batch: g_i = ⟨∂L/∂w, w_i⟩ at w = Σ p_i w_i, an Adam step on p with
    g, then p ← Π(p), the projection onto the simplex.  The last p is used.  The paper takes 20 epochs, 50 under attack,
    on 128 samples.  It does not speak of BatchNorm; "mixed" averages the running statistics with p, as it does the
    weights (docs/batchnorm.md).  A single client's model is shipped as it is.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"
    widens: ClassVar[bool] = True

    server_epochs: int = 20
    lr: float = 1e-2
    batch_size: int = 32
    batchnorm: BatchNormMode = "mixed"

    def __post_init__(self) -> None:
        check_search(self.server_epochs, self.batch_size, self.lr)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        if self.server_epochs == 0:
            return weighted(updates, updates.weights)
        labels, generator = labels_of(proxy), server.generator

        def loss(logits: Tensor, index: Tensor) -> Tensor:
            return F.cross_entropy(logits, labels[index])

        def search(among: Updates, hull: Hull) -> Aggregate | None:
            start = among.weights.cpu()
            p, adam = start.clone(), FlatAdam(self.lr)
            for index in minibatches(
                len(proxy), self.batch_size, self.server_epochs if len(among) > 1 else 0, generator
            ):
                _, gradient = hull.gradient(p, index, loss)
                if not torch.isfinite(gradient).all():
                    return None
                adam.step(p, gradient)
                p = project_simplex(p)
            vector, logits = hull.result(p)
            if not torch.isfinite(logits).all():
                return None
            return Aggregate(vector, p, {"moved": float((p - start).abs().sum())})

        return on_finite_clients(search, updates, lambda among: Hull(among, model, proxy.inputs, self.batchnorm))

    def tolerates(self, n: int) -> int | None:
        return None
