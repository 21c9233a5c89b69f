"""Model, data and training.  Replace all three by your own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl import Experiment
from smartfl.data.federation import Federation
from smartfl.experiment.federation import build_federation


def new_model() -> nn.Module:
    """An MLP for 8 × 8 pixels and ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def digits(clients: int, seed: int) -> Federation:
    """The digits that ship with scikit-learn, split the same way wherever this runs: shards, server's samples, test."""
    data = {"dataset": "digits", "clients": clients, "partition": "feddf", "alpha": 0.5, "proxy": {"size": 128}}
    return build_federation(Experiment.of({"seed": seed, "data": data}), "labelled")


def train(
    net: nn.Module, inputs: Tensor, labels: Tensor, lr: float, batch: int, epochs: int, order: torch.Generator
) -> int:
    """Plain SGD; returns the number of steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    steps = 0
    for _ in range(epochs):
        for index in torch.randperm(len(labels), generator=order).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(net(inputs[index]), labels[index]).backward()
            optimizer.step()
            steps += 1
    return steps


@torch.no_grad()
def test(net: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and loss."""
    net.eval()
    logits = net(inputs)
    return {
        "accuracy": float((logits.argmax(dim=1) == labels).float().mean()),
        "loss": float(F.cross_entropy(logits, labels)),
    }
