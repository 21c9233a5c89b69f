"""FedNova: average updates per local step, so that clients with more steps do not pull harder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.proxy import global_model_kept
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


def local_lengths(num_steps: Tensor, momentum: float = 0.0) -> Tensor:
    """(n,) float64 a_i, the length of a local path of τ_i steps in units of one gradient.

    a_i = τ_i, and with momentum ρ   a_i = (τ_i − ρ(1 − ρ^{τ_i})/(1 − ρ)) / (1 − ρ).
    """
    tau = num_steps.to(torch.float64).clamp_min(0)
    return (tau - momentum * (1 - momentum**tau) / (1 - momentum)) / (1 - momentum)


def nova_factors(weights: Tensor, lengths: Tensor) -> tuple[Tensor, float]:
    """(n,) factors c_i = τ_eff α_i / a_i of the updates Δ_i, and τ_eff = Σ α_i a_i; c_i = 0 where a_i = 0."""
    effective = (weights * lengths).sum()
    moved = lengths > 0
    return torch.where(moved, effective * weights / lengths.where(moved, 1), 0), float(effective)


@dataclass(frozen=True)
class FedNova(Aggregator):
    """w ← w^t + τ_eff Σ α_i Δ_i / a_i with a_i the effective number of local steps and τ_eff = Σ α_i a_i.

    Wang et al. 2020, "Tackling the objective inconsistency problem in heterogeneous federated optimization". a_i =
    τ_i for SGD without momentum; ``momentum`` is the clients' ρ. Not defined for Adam: leave it 0. Equal τ is
    FedAvg. Coefficients and buffer weights are the factors τ_eff α_i / a_i divided by their sum. A client that
    reports no step counts for nothing; when nobody made one, the global model is kept.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum = {self.momentum} must lie in [0, 1)")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        lengths = local_lengths(updates.num_steps, self.momentum)
        factors, effective = nova_factors(updates.weights, lengths)
        if factors.sum() <= 0:
            return global_model_kept(updates, "no client with samples made a step: the global model is kept")
        p = factors / factors.sum()
        size = updates.spec.num_parameters
        vector = updates.mix(p)
        vector[:size] = updates.origin[:size] + factors.to(vector.dtype) @ updates.deltas
        idle = int((lengths <= 0).sum())
        events = (f"{idle} clients report no local step: weight 0",) if idle else ()
        return Aggregate(vector, p, {"tau_eff": effective}, events)
