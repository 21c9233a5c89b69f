"""Local training: samples a second on one core, by model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from smartfl.clients.plain import Plain
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dense
from smartfl.flat import FlatSpec
from smartfl.measure.clock import best, threads
from smartfl.registry import build
from smartfl.rng import seeded


@dataclass(frozen=True)
class Workload:
    """A model and the shape of its samples; ten classes."""

    model: str
    shape: tuple[int, ...]

    def build(self) -> nn.Module:
        """The model, the same every time."""
        with seeded(0, "measure", self.model):
            model: nn.Module = build("models", self.model, {}, "model", {"input_shape": self.shape, "num_classes": 10})
        return model


WORKLOADS = (
    Workload("mlp", (1, 8, 8)),
    Workload("convnet", (1, 28, 28)),
    Workload("resnet8", (3, 32, 32)),
    Workload("mobilenet", (3, 32, 32)),
)


def training_rate(workload: Workload, budget: float, batch: int = 32, steps: int = 2) -> float:
    """Samples a second that a client trains with Adam on one core, on random data."""
    model = workload.build()
    origin = FlatSpec.of(model).flatten(model)
    trainer = LocalTrainer(model, Recipe(batch_size=batch), Plain())
    generator = torch.Generator().manual_seed(0)
    samples = Dense(torch.randn(batch * steps, *workload.shape, generator=generator))
    labels = torch.randint(0, 10, (batch * steps,), generator=generator)
    trainer.load(origin)
    with threads(1):
        return batch * steps / best(lambda: trainer.train(samples, labels, generator), budget)
