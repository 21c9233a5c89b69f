"""Local training by an optimiser that lasts."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from smartfl.clients.base import ClientAlgorithm
from smartfl.optimizers import ClientOptimizer, FlatSGD


@dataclass
class Lasting(ClientAlgorithm):
    """Plain local training, but a client's optimiser lives as long as the federation.

    Adam's moments and step count (SGD's momentum) are those with which the client ended its last round, as in the code
    of FedAUX (Sattler et al. 2021), which makes one optimiser per client.  Elsewhere every round begins with a new one.
    """

    _optimizer: ClientOptimizer = field(default_factory=lambda: FlatSGD(0.0), init=False, repr=False)

    def state_size(self, num_parameters: int, optimizer: ClientOptimizer) -> int:
        return optimizer.memory_size(num_parameters)

    def begin(self, start: Tensor, optimizer: ClientOptimizer, shared: Tensor | None, own: Tensor | None) -> None:
        self._optimizer = optimizer
        if own is not None:
            optimizer.recall(own)

    def finish(self, w: Tensor, steps: int) -> Tensor | None:
        return self._optimizer.memory()
