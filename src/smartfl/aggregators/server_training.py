"""Training on the server: minimise a loss on the proxy data over the whole parameter vector."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from smartfl.aggregators.proxy import minibatches
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.rng import seeded

BatchLoss = Callable[[Tensor, Tensor], Tensor]
"""(logits (b, C), sample indices (b,)) → scalar."""


@dataclass(frozen=True)
class ServerRecipe:
    """How the server trains.

    epochs      passes over the proxy data, E_s; 0 leaves the start as it is
    clip        largest norm of the gradient over all parameters; None for no clipping
    """

    epochs: int
    lr: float
    batch_size: int
    optimizer: Literal["adam", "sgd"] = "adam"
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise UserError(f"server_epochs = {self.epochs} must be at least 0")
        if not self.lr > 0:
            raise UserError(f"lr = {self.lr} must be above 0")
        if self.batch_size < 1:
            raise UserError(f"batch_size = {self.batch_size} must be at least 1")
        if self.optimizer not in ("adam", "sgd"):
            raise UserError(f"optimizer = {self.optimizer!r} is unknown; accepted: adam, sgd")
        if self.clip is not None and not self.clip > 0:
            raise UserError(f"clip = {self.clip} must be above 0, or left out")

    def build(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh optimiser: its state never survives a round."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=self.lr)
        return torch.optim.Adam(parameters, lr=self.lr)


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """The BatchNorm layers of a model, of any dimension."""
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def server_epochs(
    model: nn.Module,
    spec: FlatSpec,
    start: Tensor,
    inputs: Tensor,
    loss: BatchLoss,
    recipe: ServerRecipe,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """The model (d,) after each epoch of training from ``start`` (d,) on ``inputs`` (N, …).

    Train mode, so BatchNorm statistics drift towards the proxy data; on a batch of one sample BatchNorm uses its
    running statistics, as one sample has no variance.  ``model`` itself is not touched.  Batch order and dropout
    depend on ``generator`` alone.
    """
    student = deepcopy(model).train()
    spec.load(student, start)
    parameters = [p for p in student.parameters() if p.requires_grad]
    norms = batch_norms(student)
    optimizer = recipe.build(parameters)
    for _ in range(recipe.epochs):
        dropout_seed = int(torch.randint(2**62, (), generator=generator))
        with seeded(dropout_seed), torch.enable_grad():
            for index in minibatches(len(inputs), recipe.batch_size, 1, generator):
                for norm in norms:
                    norm.train(len(index) > 1)
                index = index.to(inputs.device)
                optimizer.zero_grad()
                loss(student(inputs[index]), index).backward()
                if recipe.clip is not None:
                    nn.utils.clip_grad_norm_(parameters, recipe.clip)
                optimizer.step()
        yield spec.clamp_variances_(spec.flatten(student))


def train_on_server(
    model: nn.Module,
    spec: FlatSpec,
    start: Tensor,
    inputs: Tensor,
    loss: BatchLoss,
    recipe: ServerRecipe,
    generator: torch.Generator,
) -> Tensor:
    """The model (d,) after the last epoch of :func:`server_epochs`; ``start`` itself when there is none."""
    last = deque(server_epochs(model, spec, start, inputs, loss, recipe, generator), maxlen=1)
    return last[0] if last else start


def finite_or_start(vector: Tensor, start: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """``vector`` (d,), or ``start`` (d,) and an event when training left the finite numbers."""
    if torch.isfinite(vector).all():
        return vector, ()
    return start, ("server training diverged: its start is kept",)
