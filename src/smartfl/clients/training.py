"""Local training on flat storage: every parameter is a view of one vector, every gradient of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.tiled import TiledConvNet
from smartfl.data.augment import crop_and_flip
from smartfl.data.dataset import Dense, Inputs
from smartfl.flat import FlatSpec
from smartfl.optimizers import ClientOptimizer, FlatAdam, FlatSGD


@dataclass(frozen=True)
class Recipe:
    """How a client trains: optimiser, learning rate, batch size, epochs."""

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    augment: bool = False

    def new_optimizer(self) -> ClientOptimizer:
        """A client's optimiser at the beginning of its round."""
        if self.optimizer == "sgd":
            return FlatSGD(self.lr, self.momentum, self.weight_decay)
        return FlatAdam(self.lr, self.weight_decay)


class LocalTrainer:
    """One model on flat storage, trained for one client after another.

    The trainer's own order of the parameters differs from ``FlatSpec``'s in one point: convolution kernels lie
    channels-last in memory, which makes CPU convolutions up to twice as fast.  ``inward`` and ``outward`` translate.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, algorithm: ClientAlgorithm, device: str = "cpu") -> None:
        self.model, self.recipe, self.algorithm, self.device = model.to(device), recipe, algorithm, device
        self.spec = FlatSpec.of(model)
        self.parameters = torch.zeros(self.spec.num_parameters, device=device)
        self.gradient = torch.zeros_like(self.parameters)
        self._views = self._named_views(self.parameters)
        gradients = self._named_views(self.gradient)
        named = dict(model.named_parameters())
        for name, view in self._views.items():
            named[name].data = view
            named[name].grad = gradients[name]
        buffers = dict(model.named_buffers())
        self._buffers = {entry.name: buffers[entry.name] for entry in self.spec.buffers}
        self._integers = {name: buffers[name] for name in self.spec.integers}
        self._norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        self._images = any(isinstance(m, nn.Conv2d) for m in model.modules())
        self._tiled = TiledConvNet.of(model, device)

    def _named_views(self, flat: Tensor) -> dict[str, Tensor]:
        views = {}
        for e in self.spec.parameters:
            part = flat[e.start : e.stop]
            if len(e.shape) == 4:
                out, inner, height, width = e.shape
                views[e.name] = part.view(out, height, width, inner).permute(0, 3, 1, 2)
            else:
                views[e.name] = part.view(e.shape)
        return views

    def inward(self, vector: Tensor) -> Tensor:
        """A parameter vector (P,) of the spec's order in the trainer's order."""
        own = torch.empty_like(self.parameters)
        for e, view in zip(self.spec.parameters, self._named_views(own).values(), strict=True):
            view.copy_(vector[e.start : e.stop].view(e.shape))
        return own

    def outward(self, own: Tensor) -> Tensor:
        """A parameter vector (P,) of the trainer's order in the spec's order."""
        return torch.cat([view.reshape(-1) for view in self._named_views(own).values()])

    def inward_state(self, state: Tensor) -> Tensor:
        """A client algorithm's state (S,) with its vectors (P,) in the trainer's order."""
        return self._translated(state, self.inward)

    def outward_state(self, state: Tensor) -> Tensor:
        """The inverse of ``inward_state``."""
        return self._translated(state, self.outward)

    def _translated(self, state: Tensor, translate: Callable[[Tensor], Tensor]) -> Tensor:
        size = self.spec.num_parameters
        whole = len(state) // size * size
        return torch.cat([*(translate(vector) for vector in state[:whole].split(size)), state[whole:]])

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        """Take over a model (d,)."""
        self.parameters.copy_(self.inward(vector))
        for e in self.spec.buffers:
            self._buffers[e.name].copy_(vector[e.start : e.stop].view(e.shape))

    @torch.no_grad()
    def store(self, row: Tensor) -> None:
        """Write the model into ``row`` (d,)."""
        row[: self.spec.num_parameters].copy_(self.outward(self.parameters))
        for e in self.spec.buffers:
            row[e.start : e.stop].copy_(self._buffers[e.name].reshape(-1))

    def set_integers(self, values: list[int]) -> None:
        """Set the integer buffers, one value each, in the order of ``integers``."""
        for buffer, value in zip(self._integers.values(), values, strict=True):
            buffer.fill_(value)

    def integers(self) -> list[int]:
        """The integer buffers' values (scalars, as BatchNorm's counters are)."""
        return [int(buffer.max()) for buffer in self._integers.values()]

    def train(
        self, inputs: Inputs, labels: Tensor, generator: torch.Generator, optimizer: ClientOptimizer | None = None
    ) -> int:
        """Run the recipe from the loaded model; returns the number of optimiser steps."""
        recipe, size = self.recipe, len(labels)
        optimizer = optimizer or recipe.new_optimizer()
        self.model.train()
        steps = 0
        for _ in range(recipe.epochs):
            for index in torch.randperm(size, generator=generator).split(recipe.batch_size):
                batch = self._batch(inputs, index, generator)
                target = labels[index].to(self.device)
                # Normalising one sample by its own statistics is an error in 1×1 maps: use the running ones.
                single = len(index) == 1 and bool(self._norms)
                if single:
                    self._set_norms(training=False)
                self._backward(batch, target)
                with torch.no_grad():
                    self.algorithm.before_step(self.parameters, self.gradient)
                    optimizer.step(self.parameters, self.gradient)
                    self.algorithm.after_step(self.parameters)
                if single:
                    self._set_norms(training=True)
                steps += 1
        return steps

    def _backward(self, batch: Tensor, target: Tensor) -> None:
        """Write the gradient of the batch's mean cross entropy."""
        if self._tiled is not None:
            self._tiled.backward(batch, target)
        else:
            self.gradient.zero_()
            F.cross_entropy(self.model(batch), target).backward()

    def _batch(self, inputs: Inputs, index: Tensor, generator: torch.Generator) -> Tensor:
        if self.recipe.augment and isinstance(inputs, Dense):
            batch = inputs.normalise(crop_and_flip(inputs.values.index_select(0, index), generator))
        else:
            batch = inputs[index]
        return self.laid_out(batch)

    def laid_out(self, batch: Tensor) -> Tensor:
        """The batch on the device and in the layout that the model is fastest on."""
        if self._images and batch.ndim == 4:
            batch = batch.contiguous(memory_format=torch.channels_last)
        return batch.to(self.device)

    def _set_norms(self, training: bool) -> None:
        for norm in self._norms:
            norm.train(training)
