"""ServerOnly: what the proxy samples are worth without a single client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.proxy import labels_of, require_proxy
from smartfl.aggregators.server_training import ServerRecipe, finite_or_start, train_on_server
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class ServerOnly(Aggregator):
    """The initial model, trained on the labelled proxy samples alone; no client is looked at.

    ``steps`` mini-batches of Adam on cross-entropy in the first round, in train mode, from the model that the clients
    start from; later rounds keep the result.  This is no defence.  It says what the clients are worth: where it beats
    a federation, the server would do better without one.  All coefficients are 0.

    An instance belongs to one federation: it remembers that it has been trained.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    steps: int = 600
    lr: float = 3e-3
    batch_size: int = 32
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"steps = {self.steps} must be at least 0")
        self._recipe(1)

    def _recipe(self, samples: int) -> ServerRecipe:
        """As many whole passes over the samples as make at least ``steps`` mini-batches."""
        batches = -(-samples // self.batch_size) if self.batch_size > 0 else 1
        return ServerRecipe(-(-self.steps // batches), self.lr, self.batch_size)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        nobody = torch.zeros(len(updates), dtype=torch.float64)
        if self._state.get("trained"):
            return Aggregate(updates.origin.clone(), nobody)
        labels = labels_of(proxy)
        trained = train_on_server(
            model,
            updates.spec,
            updates.origin,
            proxy.inputs,
            lambda logits, index: F.cross_entropy(logits, labels[index]),
            self._recipe(len(proxy)),
            server.generator,
        )
        vector, diverged = finite_or_start(trained, updates.origin)
        self._state["trained"] = True
        return Aggregate(vector, nobody, events=diverged)

    def tolerates(self, n: int) -> int | None:
        return n

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.clear()
        self._state.update(state)
