"""Zeno: average the clients whose update lowers the proxy loss most for its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count
from smartfl.aggregators.proxy import global_model_kept, labels_of, model_logits, require_proxy
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


def zeno_scores(before: Tensor, after: Tensor, squared_norms: Tensor, rho: float) -> Tensor:
    """(n,) score_i = L(w) − L(w − γ v_i) − ρ ‖v_i‖², from the losses ``before`` (scalar) and ``after`` (n,).

    A client without a finite loss scores −Inf.
    """
    scores = before - after - rho * squared_norms
    return scores.where(torch.isfinite(scores), -torch.inf)


@dataclass(frozen=True)
class Zeno(Aggregator):
    """w ← w^t + γ · mean of the n − b updates with the highest stochastic descent score

        score_i = L(w^t) − L(w^t + γΔ_i) − ρ ‖Δ_i‖²,   L the cross-entropy on ``batch_size`` fresh proxy samples.

    Xie et al. 2019, "Zeno: distributed stochastic gradient descent with suspicion-based fault-tolerance", for whole
    updates: v_i = −Δ_i, γ = 1. Needs b ≥ number of attackers, b < n. ``b`` is given, or round(fraction · n) capped
    at n − 1. ρ is γ/200 unless given; ``mean_square`` divides ‖Δ‖² by its length, as the released code does. Ties
    go to the smaller id. Buffers: a candidate is judged with its own, the result has the mean of the chosen.
    Without any finite loss the global model is kept.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    b: int | None = None
    fraction: float | None = None
    gamma: float = 1.0
    rho: float | None = None
    batch_size: int = 4
    mean_square: bool = False

    def __post_init__(self) -> None:
        check_assumption("b", self.b, self.fraction)
        if not self.gamma > 0:
            raise UserError(f"gamma = {self.gamma} must be above 0")
        if self.rho is not None and self.rho < 0:
            raise UserError(f"rho = {self.rho} must be at least 0")
        if self.batch_size < 1:
            raise UserError(f"batch_size = {self.batch_size} must be at least 1")

    def scores(self, updates: Updates, server: Server) -> Tensor:
        """(n,) float64 the clients' scores on a fresh draw of proxy samples."""
        model, proxy = require_proxy(self, server, labelled=True)
        index = torch.randperm(len(proxy), generator=server.generator)[: self.batch_size].to(proxy.inputs.device)
        inputs, labels = proxy.inputs[index], labels_of(proxy)[index]

        def loss(vector: Tensor) -> Tensor:
            return F.cross_entropy(model_logits(updates, model, vector, inputs).to(torch.float64), labels)

        rho = self.gamma / 200 if self.rho is None else self.rho
        if self.mean_square:
            rho /= max(1, updates.spec.num_parameters)
        squares = torch.stack([row.to(torch.float64).square().sum() for row in updates.deltas])
        after = torch.stack([loss(self._candidate(updates, row)) for row in updates.matrix])
        return zeno_scores(loss(updates.origin), after, squares, rho)

    def _candidate(self, updates: Updates, row: Tensor) -> Tensor:
        """(d,) w^t + γ (row − w^t) in the parameters, the row's own buffers."""
        if self.gamma == 1:
            return row
        size = updates.spec.num_parameters
        vector = row.clone()
        vector[:size] = torch.lerp(updates.origin[:size], row[:size], self.gamma)
        return vector

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        require_proxy(self, server, labelled=True)
        assert server is not None
        n = len(updates)
        b, events = byzantine_count("b", self.b, self.fraction, updates, n - 1)
        scores = self.scores(updates, server)
        finite = torch.isfinite(scores)
        if not finite.all():
            names = ", ".join(str(updates.ids[int(i)]) for i in torch.nonzero(~finite).flatten())
            events = (*events, f"loss on the proxy data is not finite, weight 0 for clients {names}")
        chosen = scores.argsort(descending=True, stable=True)[: min(n - b, int(finite.sum()))]
        if len(chosen) == 0:
            return global_model_kept(updates, *events, "nobody is left: the global model is kept", b=b)
        p = torch.zeros_like(updates.num_examples)
        p[chosen] = 1 / len(chosen)
        vector = self._candidate(updates, updates.mix(p))
        return Aggregate(vector, p, {"b": b, "lowest_chosen_score": float(scores[chosen[-1]])}, events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.b, self.fraction, n, n - 1)
