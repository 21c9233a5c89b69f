"""A tiny world with proxy data, for the rules that need one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates

torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class World:
    """A model for 3 features and 3 classes, clients around it, and labelled samples."""

    model: nn.Module
    updates: Updates
    proxy: Proxy

    def server(self, **changes: object) -> Server:
        """A fresh server: same seed every time, so two calls of a rule must agree."""
        start = Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(7))
        return replace(start, **changes)

    def unlabelled(self, **changes: object) -> Server:
        return self.server(proxy=replace(self.proxy, labels=None), **changes)

    def with_row(self, client: int, row: Tensor) -> Updates:
        """The same clients and one more with ``row`` (d,)."""
        u = self.updates
        return Updates.of(
            torch.cat([u.matrix, row[None]]),
            torch.cat([u.num_examples, torch.tensor([5.0], dtype=torch.float64)]),
            u.origin,
            num_steps=torch.cat([u.num_steps, torch.tensor([3])]),
            ids=[*u.ids, client],
            spec=u.spec,
        )


def tiny_model(batchnorm: bool) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if batchnorm:
            return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
        return nn.Linear(3, 3)


@pytest.fixture
def world() -> Callable[..., World]:
    def make(batchnorm: bool = False, clients: int = 4, samples: int = 24, spread: float = 0.3) -> World:
        generator = torch.Generator().manual_seed(1)
        model = tiny_model(batchnorm)
        spec = FlatSpec.of(model)
        origin = spec.flatten(model)
        matrix = origin + spread * torch.randn(clients, spec.size, generator=generator)
        for where in spec.variances:
            matrix[:, where] = matrix[:, where].abs() + 0.1
        inputs = torch.randn(samples, 3, generator=generator)
        labels = inputs.argmax(dim=1)
        updates = Updates.of(matrix, range(1, clients + 1), origin, num_steps=[2] * clients, spec=spec)
        return World(model, updates, Proxy(inputs, labels, 3))

    return make
