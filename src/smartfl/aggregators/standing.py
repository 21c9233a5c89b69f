"""A model that stands on one vector: mixes are written into it, gradients are read off another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smartfl.aggregators.batchnorm import BatchNormMode, fixed_statistics, server_model
from smartfl.flat import FlatSpec


class StandingModel:
    """``server_model`` at one vector after another, without building the module's state anew for each.

    Parameters and float buffers are views of ``vector`` (d,), and their gradients views of a second one, both in the
    order of ``spec``.  Convolution kernels are the exception: they and their gradients are copied, to and from
    channels-last tensors, on which CPU convolutions are up to twice as fast.  ``fixed_statistics`` have gradient 0.
    ``model`` itself is never touched.
    """

    def __init__(
        self, model: nn.Module, spec: FlatSpec, batchnorm: BatchNormMode, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.vector = torch.zeros(spec.size, dtype=dtype, device=device)
        self._gradient = torch.zeros_like(self.vector)
        places, slopes = spec.unflatten(self.vector), spec.unflatten(self._gradient)
        originals = dict(model.named_parameters()) | dict(model.named_buffers())
        self._kernels: list[tuple[Tensor, Tensor]] = []
        self._kernel_slopes: list[tuple[Tensor, Tensor]] = []
        replaced: dict[int, Tensor] = {}
        fixed = fixed_statistics(model)
        for entry in spec.parameters + spec.buffers:
            own, slope = places[entry.name], slopes[entry.name]
            if own.ndim == 4:
                own, slope = (torch.zeros_like(t, memory_format=torch.channels_last) for t in (own, slope))
                self._kernels.append((own, places[entry.name]))
                self._kernel_slopes.append((slope, slopes[entry.name]))
            parameter = isinstance(originals[entry.name], nn.Parameter)
            leaf = nn.Parameter(own) if parameter else own.detach().requires_grad_(entry.name not in fixed)
            leaf.grad = slope
            replaced[id(originals[entry.name])] = leaf
        self.module = server_model(model, batchnorm, replaced)

    @torch.no_grad()
    def settle(self, vector: Tensor | None = None) -> None:
        """Stand on ``vector`` (d,), or on what was written into ``self.vector``."""
        if vector is not None:
            self.vector.copy_(vector)
        for own, place in self._kernels:
            own.copy_(place)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The module's output where it stands."""
        output: Tensor = self.module(inputs)
        return output

    def gradient(self, loss: Tensor) -> Tensor:
        """(d,) ∂loss/∂vector, valid until the next call."""
        self._gradient.zero_()
        for own, _ in self._kernel_slopes:
            own.zero_()
        loss.backward()
        for own, slope in self._kernel_slopes:
            slope.copy_(own)
        return self._gradient
