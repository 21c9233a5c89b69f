"""Adam with projection onto the simplex: the paper's update of p."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.errors import UserError
from smartfl.optimizers import FlatAdam, FlatOptimizer
from smartfl.simplex import project_simplex

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
    """Where the search ended: p (n,) float64, the number of steps taken, and what went wrong on the way."""

    p: Tensor
    steps: int
    events: tuple[str, ...] = ()


def descend(
    start: Tensor,
    gradient: Callable[[Tensor, Tensor], tuple[float, Tensor]],
    batches: Sequence[Iterable[Tensor]],
    lr: float,
    centre: bool,
    each_epoch: Callable[[Tensor], None] | None = None,
    decay: bool = False,
    optimizer: FlatOptimizer | None = None,
) -> Descent:
    """Minimise over the simplex: an optimiser step on p, then p ← Π(p), after every mini-batch.

    ``gradient(p, index)`` gives the loss and its gradient (n,) on a mini-batch.  Adam scales every coordinate by its
    own gradient; where the common part ⟨∂L/∂w, w̄⟩ dominates, all coordinates step alike and the projection takes the
    step back, so ``centre`` removes the median first (one huge client would be most of the mean, and all others would
    step alike again).  ``decay`` lets the step shrink to nothing over the second half of the epochs, which ends Adam's
    jitter of ±lr.  A non-finite gradient is skipped; after three in a row the best p so far is returned.
    """
    p = start.clone()
    optimizer = optimizer or FlatAdam(lr)
    half = len(batches) // 2
    best, lowest = start.clone(), torch.inf
    steps, skipped = 0, 0
    for epoch, epoch_batches in enumerate(batches):
        if each_epoch is not None:
            each_epoch(p)
        if decay and isinstance(optimizer, FlatAdam):
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
            p = project_simplex(p)
            steps += 1
    return Descent(p, steps)


def _median(g: Tensor) -> Tensor:
    """The mean of the middle values of ``g`` (n,); ``quantile`` computes the same five times as slowly."""
    ordered, n = g.sort().values, len(g)
    return ordered[(n - 1) // 2].lerp(ordered[n // 2], 0.5)
