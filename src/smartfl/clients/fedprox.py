"""FedProx: a pull back to the global model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from smartfl.clients.base import ClientAlgorithm
from smartfl.errors import UserError
from smartfl.optimizers import ClientOptimizer


@dataclass
class FedProx(ClientAlgorithm):
    """Local objective F_i(w) + (μ/2)‖w − w^t‖² on trainable parameters.

    Li et al. 2020, "Federated optimization in heterogeneous networks"; they tune μ in {0.001, 0.01, 0.1, 0.5, 1}.
    The term μ(w − w^t) joins the gradient, so Adam rescales it with the rest; ``decoupled`` applies it behind the
    optimiser's step instead, w ← w − lr·μ(w − w^t).
    """

    stackable: ClassVar[bool] = True

    mu: float = 0.01
    decoupled: bool = False
    _start: Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)
    _lr: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise UserError(f"mu = {self.mu} must be at least 0")

    def begin(self, start: Tensor, optimizer: ClientOptimizer, shared: Tensor | None, own: Tensor | None) -> None:
        self._start, self._lr = start.clone(), optimizer.lr

    def before_step(self, w: Tensor, gradient: Tensor) -> None:
        if not self.decoupled and self.mu:
            gradient.add_(w - self._start, alpha=self.mu)

    def after_step(self, w: Tensor) -> None:
        if self.decoupled and self.mu:
            w.sub_(w - self._start, alpha=self._lr * self.mu)
