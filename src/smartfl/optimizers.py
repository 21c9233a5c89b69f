"""Adam and SGD on one flat vector: torch's own fused kernels, without the optimiser objects around them.

``torch.optim`` costs 0.1 ms of bookkeeping a step, as much as the arithmetic of a small model, and its first step
imports torch's compiler and sympy, which takes longer than a whole demo round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class FlatOptimizer(Protocol):
    """Updates one vector in place from a gradient of its shape; later vectors may be a prefix of the first."""

    lr: float

    def step(self, w: Tensor, gradient: Tensor) -> None: ...


class ClientOptimizer(FlatOptimizer, Protocol):
    """An optimiser whose memory, all that a step leaves behind for the next one, can be taken out and put back.

    Zeros are the memory of an optimiser without steps.
    """

    def memory_size(self, num_parameters: int) -> int: ...

    def memory(self) -> Tensor: ...

    def recall(self, memory: Tensor) -> None: ...


@dataclass
class FlatAdam:
    """Adam (Kingma & Ba 2015) with PyTorch's defaults; equal to ``torch.optim.Adam(fused=True)`` bit for bit.

    Weight decay is added to the gradient, as there.
    """

    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    _moments: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def step(self, w: Tensor, gradient: Tensor) -> None:
        if self._moments is None:
            count = torch.zeros((), dtype=torch.float32, device=w.device)
            self._moments = torch.zeros_like(w), torch.zeros_like(w), count
        mean, square, count = self._moments
        count += 1
        torch._fused_adam_(
            [w],
            [gradient],
            [mean[: len(w)]],
            [square[: len(w)]],
            [],
            [count],
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def memory_size(self, num_parameters: int) -> int:
        """Two moments (P,) and the number of steps."""
        return 2 * num_parameters + 1

    def memory(self) -> Tensor:
        return torch.empty(0) if self._moments is None else torch.cat([part.view(-1) for part in self._moments])

    def recall(self, memory: Tensor) -> None:
        half = len(memory) // 2
        self._moments = memory[:half].clone(), memory[half:-1].clone(), memory[-1].clone()


@dataclass
class FlatSGD:
    """Stochastic gradient descent with momentum; equal to ``torch.optim.SGD(fused=True)``."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    _buffer: Tensor | None = field(default=None, init=False, repr=False)

    def step(self, w: Tensor, gradient: Tensor) -> None:
        first = self._buffer is None and self.momentum > 0
        if first:
            self._buffer = torch.zeros_like(w)
        torch._fused_sgd_(
            [w],
            [gradient],
            [self._buffer[: len(w)]] if self._buffer is not None else [],
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=first,
        )

    def memory_size(self, num_parameters: int) -> int:
        """The momentum (P,), where there is one."""
        return num_parameters if self.momentum > 0 else 0

    def memory(self) -> Tensor:
        return torch.empty(0) if self._buffer is None else self._buffer.clone()

    def recall(self, memory: Tensor) -> None:
        self._buffer = memory.clone() if len(memory) else None
