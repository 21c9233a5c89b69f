"""FedOpt: an adaptive optimiser on the server, fed with the average update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


def fedopt_step(
    delta: Tensor,
    m: Tensor,
    v: Tensor,
    second_moment: Callable[[Tensor, Tensor], Tensor],
    eta: float,
    beta1: float,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The step η m / (√v + τ) and the next moments m, v, all (P,), for the average update ``delta`` (P,).

    m ← β1 m + (1 − β1) Δ and v ← ``second_moment(v, Δ²)``.
    """
    m = beta1 * m + (1 - beta1) * delta
    v = second_moment(v, delta.square())
    return eta * m / (v.sqrt() + tau), m, v


@dataclass(frozen=True)
class FedOpt(Aggregator):
    """Δ = Σ α_i Δ_i,   m ← β1 m + (1 − β1) Δ,   v ← second moment,   w ← w^t + η m / (√v + τ).

    Reddi et al. 2020, "Adaptive federated optimization". No bias correction, m = 0 and v = τ² at first, as in the
    paper. Runs on trainable parameters only; buffers are FedAvg's, as a step could turn a variance negative. A
    round without a valid client leaves m and v as they were.
    """

    eta: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    _state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for setting in ("beta1", "beta2"):
            if not 0 <= getattr(self, setting) < 1:
                raise UserError(f"{setting} = {getattr(self, setting)} must lie in [0, 1)")
        for setting in ("eta", "tau"):
            if not getattr(self, setting) > 0:
                raise UserError(f"{setting} = {getattr(self, setting)} must be above 0")

    @abstractmethod
    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """(P,) the next v from the last one and Δ²."""

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        p, size = updates.weights, updates.spec.num_parameters
        vector = updates.mix(p)
        origin = updates.origin[:size].to(torch.float64)
        delta = vector[:size] - origin  # float64: the square of 1e30 has no place in float32
        m = self._state.get("m", torch.zeros_like(delta)).to(delta.device)
        v = self._state.get("v", torch.full_like(delta, self.tau**2)).to(delta.device)
        step, m, v = fedopt_step(delta, m, v, self.second_moment, self.eta, self.beta1, self.tau)
        self._state.update(m=m, v=v)
        vector[:size] = (origin + step).to(vector.dtype)
        return Aggregate(vector, p, {"step_norm": float(step.norm())})

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.clear()
        self._state.update(state)


@dataclass(frozen=True)
class FedAdam(FedOpt):
    """FedOpt with v ← β2 v + (1 − β2) Δ²."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(FedOpt):
    """FedOpt with v ← v − (1 − β2) Δ² sign(v − Δ²): v falls no faster than Δ² allows."""

    eta: float = 0.01

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """FedOpt with v ← v + Δ². ``beta2`` is not used; the paper's experiments and Flower have β1 = 0."""

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square
