"""Adam with projection onto the simplex: the paper's update of p."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from smartfl.errors import UserError
from smartfl.optimizers import FlatOptimizer
from smartfl.simplex import project_rows

SKIPS = 3  # consecutive non-finite gradients before the search gives up


def check_search(server_epochs: int, batch_size: int, lr: float | None) -> None:
    """Refuse settings of a search that cannot be."""
    if server_epochs < 0:
        raise UserError(f"server_epochs = {server_epochs} must be at least 0")
    if batch_size < 1:
        raise UserError(f"batch_size = {batch_size} must be at least 1")
    if lr is not None and not lr > 0:
        raise UserError(f"lr = {lr} must be above 0")


@dataclass(frozen=True, eq=False)
class Descent:
    """Where the search ended: p (n,) or (L, n) float64, the number of steps taken, and what went wrong on the way."""

    p: Tensor
    steps: int
    events: tuple[str, ...] = ()


@dataclass
class SteadyAdam:
    """Adam that does not magnify small gradients: p_i ← p_i − η m_i / max(√v_i, Σ_j p_j √v_j), for p on the simplex.

    Adam walks every coordinate at full speed however small its gradient is.  Weights with small gradients then wander
    by chance, and where most clients are attackers who agree, their (centred) gradients are the small ones.  Whoever
    has a large gradient still steps by η, and with its weight it loses its say in what is small.
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    _moments: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)
    _steps: int = field(default=0, init=False, repr=False)

    def step(self, w: Tensor, gradient: Tensor) -> None:
        mean, square = self._moments or (torch.zeros_like(w), torch.zeros_like(w))
        self._moments = mean.lerp_(gradient, 1 - self.betas[0]), square.lerp_(gradient.square(), 1 - self.betas[1])
        self._steps += 1
        unbiased, size = (m / (1 - beta**self._steps) for m, beta in zip(self._moments, self.betas, strict=True))
        size = size.sqrt()
        floor = row_dots(w, size).clamp_min(self.eps)
        w -= self.lr * unbiased / torch.maximum(size, floor)


def descend(
    start: Tensor,
    gradient: Callable[[Tensor, Tensor], tuple[float, Tensor]],
    batches: Sequence[Iterable[Tensor]],
    optimizer: FlatOptimizer,
    centre: bool,
    each_epoch: Callable[[Tensor], None] | None = None,
    decay: bool = False,
) -> Descent:
    """Minimise over the simplex: an optimiser step on p, then p ← Π(p), after every mini-batch.

    ``start`` is (n,), or (L, n) with a simplex for every row, of which each is centred and projected by itself.
    ``gradient(p, index)`` gives the loss and its gradient, shaped as p, on a mini-batch.  Adam scales every coordinate
    by its own gradient; where the common part ⟨∂L/∂w, w̄⟩ dominates, all coordinates step alike and the projection takes
    the step back, so ``centre`` removes the median first (one huge client would be most of the mean, and all others
    would step alike again).  ``decay`` lets the step shrink to nothing over the second half of the epochs, which ends
    Adam's jitter of ±lr.  A non-finite gradient is skipped; after three in a row the best p so far is returned.
    """
    p, lr = start.clone(), optimizer.lr
    half = len(batches) // 2
    best, lowest = start.clone(), torch.inf
    steps, skipped = 0, 0
    for epoch, epoch_batches in enumerate(batches):
        if each_epoch is not None:
            each_epoch(p)
        if decay:
            optimizer.lr = lr * min(1.0, (len(batches) - epoch) / (len(batches) - half))
        for index in epoch_batches:
            value, g = gradient(p, index)
            if not torch.isfinite(g).all():
                skipped += 1
                if skipped == SKIPS:
                    return Descent(best, steps, (f"{SKIPS} non-finite gradients in a row: the best weights so far",))
                continue
            skipped = 0
            if value < lowest:
                best, lowest = p.clone(), value
            optimizer.step(p, g - _median(g) if centre else g)
            p = project_rows(p)
            steps += 1
    return Descent(p, steps)


def _median(g: Tensor) -> Tensor:
    """(…, 1) the mean of the middle values of ``g`` (…, n); ``quantile`` computes the same five times as slowly."""
    ordered, n = g.sort(dim=-1).values, g.shape[-1]
    return ordered[..., (n - 1) // 2, None].lerp(ordered[..., n // 2, None], 0.5)


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """(…, 1) the inner products of ``a`` and ``b`` (n,), or of every row of theirs (L, n)."""
    return (a @ b)[None] if a.ndim == 1 else (a * b).sum(dim=-1, keepdim=True)
