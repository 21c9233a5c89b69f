"""What an attack may do, and what it may know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from smartfl.data.dataset import Dataset, Inputs
from smartfl.types import Proxy, Rule, Server, Updates


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the threat model grants beside the updates.

    rule      the server's aggregator, for attacks that know the defence
    server    the server's view *without its proxy data*
    samples   data of the compromised clients, labelled: the attacker's stand-in for the proxy data
    """

    generator: torch.Generator
    round: int = 0
    rule: Rule | None = None
    server: Server | None = None
    samples: Proxy | None = None


class Attack:
    """Two places where a compromised client can lie: in its data, and in what it sends.

    Both hooks do nothing here; an attack is a dataclass that overrides one of them or both.  Compromised clients
    train honestly first, so ``updates`` holds their before-attack rows.
    """

    def poison_data(
        self, inputs: Inputs, labels: Tensor, num_classes: int, generator: torch.Generator
    ) -> tuple[Inputs, Tensor]:
        """The training samples a compromised client uses; called on that client, every round."""
        return inputs, labels

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        """The updates that reach the server; ``malicious`` (n,) bool marks the compromised rows."""
        return updates

    def metrics(self, predict: Callable[[Tensor], Tensor], dataset: Dataset) -> dict[str, float]:
        """Attack-specific scores of the new global model; ``predict`` maps a batch to logits."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What the attack carries from round to round: tensors and JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the state again."""


def observed(updates: Updates, malicious: Tensor) -> Tensor:
    """(k, P) the benign updates an omniscient attacker goes by; its own honest ones when no benign client is there.

    Rows that screening would refuse are left out: one diverged client must not make the attack NaN.
    """
    deltas = updates.deltas
    finite = torch.isfinite(deltas.sum(dim=1, dtype=torch.float64))
    benign = ~malicious.to(deltas.device) & finite
    return deltas[benign if benign.any() else finite]


def dots(rows: Tensor, vector: Tensor) -> Tensor:
    """(k,) float64 ⟨row_i, vector⟩ for ``rows`` (k, P), one row in double precision at a time."""
    other = vector.to(torch.float64)
    return torch.stack([row.to(torch.float64) @ other for row in rows])


def send(updates: Updates, malicious: Tensor, deltas: Tensor) -> Updates:
    """Updates in which the malicious clients report w^t + ``deltas`` (k, P) or (P,).

    Only trainable parameters are altered: negated running variances would be refused by screening, and an attack
    that is refused is none.  For the same reason NaN becomes 0 and ±Inf a value that the rule can still add up.
    """
    where = torch.nonzero(malicious).flatten().to(updates.matrix.device)
    size = updates.spec.num_parameters
    matrix = updates.matrix.clone()
    limit = torch.finfo(matrix.dtype).max / 4
    start = updates.origin[:size]
    rows = (start + deltas.nan_to_num(0.0, limit, -limit)).clamp(-limit, limit).to(matrix.dtype)
    assert torch.isfinite(rows).all() or not torch.isfinite(start).all(), "poisoned rows must stay finite"
    matrix[where, :size] = rows.expand(len(where), size)
    return updates.with_matrix(matrix)
