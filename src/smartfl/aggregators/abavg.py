"""ABAvg: weights proportional to accuracy on the proxy data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    labels_of,
    require_proxy,
    weights_among,
)
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


def accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """(…,) float64 share of the N samples whose largest of ``logits`` (…, N, C) is at the label; ``labels`` (N,)."""
    return (logits.argmax(dim=-1) == labels).to(torch.float64).mean(dim=-1)


def abavg_weights(accuracy: Tensor, counts: Tensor | None = None) -> Tensor:
    """(n,) float64 p_i ∝ acc_i, or acc_i N_i with ``counts`` (n,); all zero when every product is."""
    product = accuracy.to(torch.float64) if counts is None else accuracy.to(torch.float64) * counts
    total = product.sum()
    return product / total if total > 0 else torch.zeros_like(product)


@dataclass(frozen=True)
class ABAvg(Aggregator):
    """w ← Σ p_i w_i with p_i = acc_i / Σ acc_j, acc_i the accuracy of client i's model on the proxy data.

    Xiao et al. 2021, "Accuracy based averaging" (ISPDC). Whether the original also multiplies by sample counts
    could not be verified: ``times_samples``. Single-class clients all score about 1/C, so the weights are then
    close to uniform. With Σ acc = 0 the FedAvg weights are used.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    times_samples: bool = False

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        logits = client_logits(updates, model, proxy.inputs)
        finite, events = finite_clients(updates, logits)
        if not finite.any():
            return global_model_kept(updates, *events, "nobody is left: the global model is kept")
        accuracy = accuracies(logits, labels_of(proxy)).where(finite, 0)
        p = abavg_weights(accuracy, updates.num_examples if self.times_samples else None)
        if p.sum() == 0:
            events = (*events, "no client is right on any proxy sample: FedAvg weights")
            p = weights_among(updates, finite)
        return replace(weighted(updates, p, proxy_accuracy_best=float(accuracy.max())), events=events)

    def tolerates(self, n: int) -> int | None:
        return None
