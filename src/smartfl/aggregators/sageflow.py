"""Sageflow: drop unsure clients, weigh the others by the inverse of their proxy loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.proxy import client_logits, finite_clients, global_model_kept, labels_of, require_proxy
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


def losses_and_entropies(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) float64 mean cross-entropy L_i and mean prediction entropy H_i (nats) of ``logits`` (n, N, C)."""
    log_p = torch.log_softmax(logits.to(torch.float64), dim=-1)
    losses = -log_p.gather(-1, labels.expand(len(logits), -1)[..., None]).mean(dim=(1, 2))
    # xlogy-style: a class of probability 0 adds 0, not 0 · (−Inf).
    entropies = torch.special.entr(log_p.exp()).sum(dim=-1).mean(dim=1)
    return losses, entropies


def sageflow_weights(
    losses: Tensor, entropies: Tensor, counts: Tensor, entropy_threshold: float = 1.0, delta: float = 1.0
) -> Tensor:
    """(n,) float64 β_i ∝ [H_i < E_th] N_i / L_i^δ; all zero when nobody passes the filter.

    A client with a non-finite loss never passes.  Counts that are 0 for everyone who passes are ignored.
    """
    keep = (entropies < entropy_threshold) & torch.isfinite(losses)
    if not keep.any():
        return torch.zeros_like(losses, dtype=torch.float64)
    # Logarithms, because L^−δ overflows for a clamped loss of 1e-8 and a large δ.
    score = -delta * losses.to(torch.float64).clamp_min(1e-8).log()
    if counts[keep].sum() > 0:
        score = score + counts.to(torch.float64).log()
    return torch.softmax(score.where(keep, -torch.inf), dim=0)


@dataclass(frozen=True)
class Sageflow(Aggregator):
    """w ← Σ β_i w_i with β_i ∝ [H_i < E_th] N_i^s / L_i^δ, where L_i and H_i are the mean loss and the mean prediction
    entropy (nats) of client i's model on the proxy data, in eval mode.

    Park et al. 2021, "Sageflow: robust federated learning against both stragglers and adversaries"; the synchronous
    part (Eflow), as there are no stragglers here. s = 1 with ``weight_by_examples`` (the paper), 0 without (its
    code). When everyone is filtered, as at the start where H ≈ ln C, ``fallback`` says what happens: "loss_only"
    uses the loss weights unfiltered, "keep" keeps the global model.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    entropy_threshold: float = 1.0
    delta: float = 1.0
    weight_by_examples: bool = True
    fallback: Literal["loss_only", "keep"] = "loss_only"

    def __post_init__(self) -> None:
        if not self.entropy_threshold > 0:
            raise UserError(f"entropy_threshold = {self.entropy_threshold} must be above 0 (nats; ln C filters nobody)")
        if self.delta < 0:
            raise UserError(f"delta = {self.delta} must be at least 0")
        if self.fallback not in ("loss_only", "keep"):
            raise UserError(f"fallback = {self.fallback!r} is unknown; accepted: loss_only, keep")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        logits = client_logits(updates, model, proxy.inputs)
        finite, events = finite_clients(updates, logits)
        if not finite.any():
            return global_model_kept(updates, *events, "nobody is left: the global model is kept")
        losses, entropies = losses_and_entropies(logits, labels_of(proxy))
        losses = losses.where(finite, torch.inf)
        counts = updates.num_examples if self.weight_by_examples else torch.ones_like(updates.num_examples)
        kept = int((finite & (entropies < self.entropy_threshold)).sum())
        info = {"kept": kept, "entropy": float(entropies[finite].mean()), "proxy_loss_best": float(losses.min())}
        threshold = self.entropy_threshold
        if kept == 0:
            reason = f"every client's prediction entropy is at least {threshold:g}"
            if self.fallback == "keep":
                return global_model_kept(updates, *events, f"{reason}: the global model is kept", **info)
            events = (*events, f"{reason}: weights by loss alone")
            threshold = torch.inf
        p = sageflow_weights(losses, entropies, counts, threshold, self.delta)
        return replace(weighted(updates, p, **info), events=events)

    def tolerates(self, n: int) -> int | None:
        return None
