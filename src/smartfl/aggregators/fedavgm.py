"""FedAvgM: momentum on the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class FedAvgM(Aggregator):
    """v ← βv + (w^t − w̄),   w ← w^t − ηv,   with w̄ the FedAvg model and v = 0 at first.

    Hsu et al. 2019, "Measuring the effects of non-identical data distribution for federated visual classification".
    β = 0 and η = 1 is FedAvg. Buffers are FedAvg's: momentum could turn a variance negative. A round without a valid
    client leaves v as it was.
    """

    beta: float = 0.9
    eta: float = 1.0
    _state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise UserError(f"beta = {self.beta} must lie in [0, 1)")
        if not self.eta > 0:
            raise UserError(f"eta = {self.eta} must be above 0")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        p, size = updates.weights, updates.spec.num_parameters
        vector = updates.mix(p)
        origin = updates.origin[:size].to(torch.float64)
        velocity = origin - vector[:size]
        if "velocity" in self._state:
            velocity += self.beta * self._state["velocity"].to(velocity.device)
        self._state["velocity"] = velocity
        vector[:size] = (origin - self.eta * velocity).to(vector.dtype)
        return Aggregate(vector, p, {"velocity_norm": float(velocity.norm())})

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.clear()
        self._state.update(state)
