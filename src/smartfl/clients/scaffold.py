"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from smartfl.clients.base import ClientAlgorithm
from smartfl.optimizers import ClientOptimizer


def _none() -> Tensor:
    return torch.empty(0)


@dataclass
class Scaffold(ClientAlgorithm):
    """Correct every local step by c − c_i, the server's control minus the client's; all controls start at 0.

        step   the optimiser's own step on g, then w ← w − lr (c − c_i);  c_i ← c_i − c + (w^t − w)/(K lr)
        grad   the optimiser sees g + c − c_i;                             c_i ← mean raw gradient of the K steps
        server c ← c + (1/n) Σ_{i∈S} (c_i⁺ − c_i), with n *all* clients

    Karimireddy et al. 2020, option II.  With SGD both spaces are the paper's algorithm.  With Adam (w^t − w)/(K lr) is
    a mean Adam direction, so it may correct steps but must not be added to raw gradients: ``space="step"`` is the
    default, the scheme of NIID-Bench.  K counts optimiser steps.  The averaging of models is the aggregator's.
    """

    shares: ClassVar[bool] = True

    space: Literal["step", "grad"] = "step"
    _start: Tensor = field(default_factory=_none, init=False, repr=False)
    _shared: Tensor = field(default_factory=_none, init=False, repr=False)
    _own: Tensor = field(default_factory=_none, init=False, repr=False)
    _correction: Tensor = field(default_factory=_none, init=False, repr=False)
    _sum: Tensor = field(default_factory=_none, init=False, repr=False)
    _lr: float = field(default=0.0, init=False, repr=False)

    def state_size(self, num_parameters: int, optimizer: ClientOptimizer) -> int:
        return num_parameters

    def begin(self, start: Tensor, optimizer: ClientOptimizer, shared: Tensor | None, own: Tensor | None) -> None:
        self._start, self._lr = start.clone(), optimizer.lr
        self._shared = torch.zeros_like(start) if shared is None else shared
        self._own = torch.zeros_like(start) if own is None else own
        self._correction = self._shared - self._own
        self._sum = torch.zeros_like(start)

    def before_step(self, w: Tensor, gradient: Tensor) -> None:
        if self.space == "grad":
            self._sum.add_(gradient)
            gradient.add_(self._correction)

    def after_step(self, w: Tensor) -> None:
        if self.space == "step":
            w.sub_(self._correction, alpha=self._lr)

    def finish(self, w: Tensor, steps: int) -> Tensor | None:
        if steps == 0:
            return self._own.clone()
        if self.space == "grad":
            return self._sum / steps
        return self._own - self._shared + (self._start - w) / (steps * self._lr)

    def merge(self, shared: Tensor, before: Tensor, after: Tensor, num_clients: int) -> Tensor:
        return shared + (after - before).sum(dim=0) / num_clients
