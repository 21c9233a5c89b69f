"""A module's state as one vector: trainable parameters first, then float buffers; integer buffers aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """One tensor of the module and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + torch.Size(self.shape).numel()


def _lay_out(tensors: Iterable[tuple[str, Tensor]], start: int) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for name, tensor in tensors:
        entries.append(Entry(name, tuple(tensor.shape), start))
        start = entries[-1].stop
    return tuple(entries)


@dataclass(frozen=True)
class FlatSpec:
    """How a vector (d,) maps to a module's tensors.

    Distances, cosines, norms, clipping and attacks may look at ``vector[..., :num_parameters]`` only; the
    float buffers behind it (BatchNorm statistics) travel with the weights that a rule gave the clients, or their layer.
    Frozen parameters are part of neither: they never change.
    """

    parameters: tuple[Entry, ...]
    buffers: tuple[Entry, ...] = ()
    integers: tuple[str, ...] = ()

    @classmethod
    def of(cls, module: nn.Module) -> FlatSpec:
        """The layout of ``module``, in the order of ``named_parameters`` and ``named_buffers``."""
        parameters = _lay_out(((k, p) for k, p in module.named_parameters() if p.requires_grad), 0)
        floats = [(k, b) for k, b in module.named_buffers() if b.is_floating_point()]
        buffers = _lay_out(floats, parameters[-1].stop if parameters else 0)
        # A counter has one value; a whole table of integers is a constant of the module and stays where it is.
        integers = tuple(k for k, b in module.named_buffers() if not b.is_floating_point() and b.numel() == 1)
        return cls(parameters, buffers, integers)

    @classmethod
    def plain(cls, size: int) -> FlatSpec:
        """A vector without a module: ``size`` parameters and nothing else."""
        return cls((Entry("vector", (size,), 0),))

    @cached_property
    def num_parameters(self) -> int:
        return self.parameters[-1].stop if self.parameters else 0

    @cached_property
    def size(self) -> int:
        return self.buffers[-1].stop if self.buffers else self.num_parameters

    @cached_property
    def variances(self) -> tuple[slice, ...]:
        """Where running variances sit: they must never be negative."""
        return tuple(slice(e.start, e.stop) for e in self.buffers if e.name.endswith("running_var"))

    def flatten(self, module: nn.Module) -> Tensor:
        """A copy of the module's parameters and float buffers as one vector (d,)."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            return torch.cat([tensors[e.name].detach().reshape(-1) for e in self.parameters + self.buffers])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Named views of ``vector`` (d,); differentiable (one split, so one concatenation backwards)."""
        entries = self.parameters + self.buffers
        parts = vector.split([e.stop - e.start for e in entries])
        return {e.name: part.view(e.shape) for e, part in zip(entries, parts, strict=True)}

    def load(self, module: nn.Module, vector: Tensor) -> None:
        """Copy ``vector`` (d,) into the module in place."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            for name, value in self.unflatten(vector).items():
                tensors[name].copy_(value)

    def functional_call(self, module: nn.Module, vector: Tensor, *inputs: Any) -> Tensor:
        """The module's output with ``vector`` (d,) in the place of its own state."""
        output: Tensor = torch.func.functional_call(module, self.unflatten(vector), inputs)
        return output

    def read_integers(self, module: nn.Module) -> dict[str, Tensor]:
        """Copies of the integer buffers (``num_batches_tracked``)."""
        tensors = dict(module.named_buffers())
        return {name: tensors[name].clone() for name in self.integers}

    def clamp_variances_(self, vector: Tensor) -> Tensor:
        """Raise running variances to at least 1e-12, in place."""
        for where in self.variances:
            vector[..., where].clamp_(min=1e-12)
        return vector
