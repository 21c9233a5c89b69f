"""FoolsGold: clients whose updates point the same way, round after round, lose their weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.errors import UserError
from smartfl.types import Aggregate, Server, Updates

BLOCK = 4096
HUGE = 1e150  # squares of larger float64 values are Inf
# 1 − cosine of equal directions is rounding, and dividing by the largest would turn rounding into full weight.
NOISE = 1e-9


def foolsgold_weights(cosines: Tensor) -> Tensor:
    """(n,) weights in [0, 1] from the cosine similarities (n, n) of the clients' histories.

    v_i = max(0, max_{j≠i} c_ij);  c_ij ← c_ij · v_i/v_j where v_i < v_j (pardoning);  a_i = 1 − max_j c_ij, divided
    by the largest;  then ln(a/(1 − a)) + ½, all clipped to [0, 1].
    """
    similar = cosines.clone().fill_diagonal_(0)
    v = similar.max(dim=1).values.clamp_min(0)
    pardon = torch.where(v[:, None] < v[None, :], v[:, None] / v[None, :].clamp_min(torch.finfo(v.dtype).tiny), 1.0)
    a = (1 - (similar * pardon).max(dim=1).values).clamp(0, 1)
    largest = a.max()
    if largest < NOISE:
        return torch.zeros_like(a)
    a = (a / largest).clamp_max(0.99)
    return (torch.log(a / (1 - a)) + 0.5).clamp(0, 1)


@dataclass(frozen=True)
class FoolsGold(Aggregator):
    """w ← w^t + Σ a_i Δ_i / Σ a_i, with a_i small for clients whose summed updates H_i = Σ_rounds Δ_i look alike.

    Fung, Yoon & Beschastnikh 2018, "Mitigating sybils in federated learning poisoning". H_i is kept per client id:
    the rule's state, as large as the models of all clients seen. ``last`` limits the comparison to the last so many
    parameter tensors (2: weight and bias of the output layer). When all clients look alike, honest or not, every a_i
    is 0 and the global model is kept, with an event: not for IID data. Buffers take a_i/Σa. O(n² d).
    """

    last: int | None = None
    _history: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise UserError(f"last = {self.last} must be 1 or more, or left out for all parameters")

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        start = 0 if self.last is None else updates.spec.parameters[-self.last :][0].start
        limit = min(torch.finfo(updates.matrix.dtype).max, HUGE)
        size = updates.spec.num_parameters
        for client, row in zip(updates.ids, updates.parameters, strict=True):
            delta = row[start:].to(torch.float64) - updates.origin[start:size]
            past = self._history.get(client)
            total = delta if past is None else past.to(delta.device) + delta
            # Rows near the largest float must not add up to Inf: Inf/Inf would make every cosine NaN.
            self._history[client] = total.clamp(-limit, limit).to(updates.matrix.dtype)
        a = foolsgold_weights(self._cosines(updates.ids))
        if a.sum() == 0:
            event = f"all {len(updates)} clients look like Sybils: the global model is kept"
            return Aggregate(updates.origin.clone(), torch.zeros_like(a), events=(event,))
        return weighted(updates, a / a.sum(), silenced=float((a == 0).sum()))

    def _cosines(self, ids: tuple[int, ...]) -> Tensor:
        histories = [self._history[client] for client in ids]
        gram = torch.zeros((len(ids), len(ids)), dtype=torch.float64, device=histories[0].device)
        for begin in range(0, len(histories[0]), BLOCK):
            block = torch.stack([h[begin : begin + BLOCK] for h in histories]).to(torch.float64)
            gram += block @ block.T
        norms = gram.diagonal().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        return gram / norms[:, None] / norms[None, :]

    def tolerates(self, n: int) -> int | None:
        return None

    def state_dict(self) -> dict[str, Any]:
        return {str(client): history for client, history in self._history.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._history.clear()
        self._history.update({int(client): history for client, history in state.items()})
