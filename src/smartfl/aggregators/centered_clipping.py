"""Centered clipping: a running centre that no client can pull further than τ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.distances import distances_to, mix_differences
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class CenteredClipping(Aggregator):
    """w ← w^t + v after ``iterations`` steps of

        v ← v + (1/n) Σ (Δ_i − v) · min(1, τ/‖Δ_i − v‖)

    Karimireddy, He & Jaggi 2021, "Learning from history for Byzantine robust optimization". v starts at 0 and is
    carried from round to round: it is the rule's state. Ignores sample counts. Buffers: the uniform mean. No number
    of attackers is proved beyond about a tenth of the clients; each moves v by at most τ/n a step. O(n d) a step.
    """

    tau: float = 5.0
    iterations: int = 5
    _state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise UserError(f"tau = {self.tau:g} must be above 0")
        if self.iterations < 1:
            raise UserError(f"iterations = {self.iterations} must be 1 or more")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n, size = len(updates), updates.spec.num_parameters
        start = updates.origin[:size]
        carried = self._state.get("v")
        v = torch.zeros_like(start, dtype=torch.float64) if carried is None else carried.to(start.device).clone()
        if len(v) != size:
            raise ValueError(f"CenteredClipping carries a v of {len(v)} values, the model has {size} parameters")
        centre, clipped = start + v, 0
        for _ in range(self.iterations):
            distances = distances_to(updates.parameters, centre)
            clipped = int((distances > self.tau).sum())
            # Where the distance is 0 the factor is 1: the maximum keeps 0/0 out.
            factors = self.tau / distances.clamp_min(self.tau)
            mix_differences(updates.parameters, centre, factors / n, add_to=v)
            torch.add(start, v, out=centre)
        self._state["v"] = v
        vector = updates.mix(torch.full_like(updates.num_examples, 1 / n))
        vector[:size] = centre
        return Aggregate(vector, info={"clipped": clipped, "norm": float(torch.linalg.vector_norm(v))})

    def tolerates(self, n: int) -> int | None:
        return None

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.clear()
        self._state.update(state)
