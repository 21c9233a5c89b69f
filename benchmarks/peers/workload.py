"""What every peer runs: the workloads, their files, and the plain PyTorch code that the peers share.

Imports nothing of smartfl but its model definitions (plain modules), so that it runs in the peers' environments.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEARNING_RATE, BATCH, CHUNK = 1e-3, 32, 500
CORES = 2


@dataclass(frozen=True)
class Workload:
    """A federation with FedAvg: ``cohort`` of ``clients`` train one epoch a round (Adam 1e-3, batch 32), IID shards.

    rounds, repeat   of the full measurement; the first round of a run is its start-up and is not timed
    once             peers that take part in the first repetition only, where rounds are long and they are not the
                     ones that targets are about
    """

    name: str
    title: str
    dataset: str
    model: str
    clients: int
    cohort: int
    rounds: int
    repeat: int
    once: tuple[str, ...] = ()

    def tables(self, rounds: int) -> dict[str, Any]:
        """The smartfl experiment.  It has a round more than is run, as smartfl evaluates after the last one."""
        return {
            "name": f"simulators-{self.name}",
            "rounds": rounds + 1,
            "evaluate_every": 1_000_000,
            "data": {"dataset": self.dataset, "clients": self.clients, "partition": "iid"},
            "model": {"name": self.model},
            "client": {"lr": LEARNING_RATE, "batch_size": BATCH, "participation": self.cohort / self.clients},
            "aggregator": {"name": "peers.counted:CountedFedAvg"},
        }


WORKLOADS = {
    w.name: w
    for w in (
        Workload("a", "MNIST, ConvNet 10/20, 48 of 80 clients", "mnist", "convnet", 80, 48, 3, 3),
        Workload(
            "b",
            "CIFAR-10, ResNet-8, 32 of 80 clients",
            "cifar10",
            "resnet8",
            80,
            32,
            3,
            3,
            once=("pfl", "hand-written loop"),
        ),
        Workload("c", "20 Newsgroups, logistic regression, 32 of 80 clients", "20newsgroups", "logistic", 80, 32, 4, 3),
        Workload("d", "digits, MLP, 100 of 1,000 clients", "digits", "mlp", 1000, 100, 6, 3),
    )
}


class Files:
    """A workload on disk, as ``peers.export`` left it; arrays are mapped, so that processes share their pages.

    Dense samples are raw values (N, …), normalised when a client's samples are taken; sparse ones are CSR rows.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.meta: dict[str, Any] = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        self.workload = WORKLOADS[self.meta["workload"]]
        self.cohorts: list[list[int]] = self.meta["cohorts"]
        self.index, self.starts = self.array("index"), self.array("starts")
        self.train, self.test = self._samples("train"), self._samples("test")
        self.train_labels = torch.from_numpy(self.array("train_labels"))
        self.test_labels = torch.from_numpy(self.array("test_labels"))

    def array(self, name: str) -> Any:
        return np.asarray(np.load(self.directory / f"{name}.npy", mmap_mode="c"))

    def _samples(self, part: str) -> Any:
        if not self.meta["sparse"]:
            return self.array(part)
        from scipy.sparse import csr_matrix

        names = (f"{part}_values", f"{part}_columns", f"{part}_starts")
        rows = len(self.array(f"{part}_starts")) - 1
        return csr_matrix(tuple(self.array(n) for n in names), shape=(rows, self.meta["shape"][0]))

    def size(self, client: int) -> int:
        return int(self.starts[client + 1] - self.starts[client])

    def client(self, client: int) -> tuple[Any, Tensor]:
        """A client's samples, (n, …) float32 or n CSR rows, and labels (n,)."""
        index = self.index[self.starts[client] : self.starts[client + 1]]
        x = self.train[index]
        return x if self.meta["sparse"] else self.normalise(x), self.train_labels[torch.from_numpy(index)]

    def normalise(self, raw: Any) -> Tensor:
        """Raw values (n, …) as the model sees them."""
        x = torch.from_numpy(raw).float()
        if raw.dtype == np.uint8:
            x /= 255
        if self.meta["mean"] is not None:
            shape = (-1, *[1] * (x.ndim - 2))
            x = (x - torch.tensor(self.meta["mean"]).view(shape)) / torch.tensor(self.meta["std"]).view(shape)
        return x

    def model(self) -> nn.Module:
        """The initial global model: smartfl's module with the exported weights."""
        name = self.workload.model
        build = getattr(import_module(f"smartfl.models.{self.meta['model_module']}"), name)
        model: nn.Module = build(tuple(self.meta["shape"]), self.meta["num_classes"])
        with np.load(self.directory / "initial.npz") as initial:
            model.load_state_dict({k: torch.from_numpy(initial[k]) for k in initial.files})
        return model

    @torch.no_grad()
    def score(self, model: nn.Module) -> dict[str, float]:
        """Accuracy and mean loss of a model on the test samples."""
        model.eval()
        correct, loss = 0, 0.0
        for start in range(0, len(self.test_labels), CHUNK):
            raw, y = self.test[start : start + CHUNK], self.test_labels[start : start + CHUNK]
            logits = model(torch.from_numpy(raw.toarray()) if self.meta["sparse"] else self.normalise(np.array(raw)))
            correct += int((logits.argmax(dim=1) == y).sum())
            loss += F.cross_entropy(logits, y, reduction="sum").item()
        return {"accuracy": correct / len(self.test_labels), "loss": loss / len(self.test_labels)}


def local_training(model: nn.Module, x: Any, y: Tensor) -> int:
    """One epoch of Adam in random batches, as one writes it by hand; returns the number of steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    model.train()
    steps = 0
    for index in torch.randperm(len(y)).split(BATCH):
        batch = x[index] if isinstance(x, Tensor) else torch.from_numpy(x[index.numpy()].toarray())
        optimizer.zero_grad()
        F.cross_entropy(model(batch), y[index]).backward()
        optimizer.step()
        steps += 1
    return steps


@dataclass
class Log:
    """What a peer tells about its rounds; times are of the monotonic clock, which all processes share."""

    threads: str
    ends: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def finished(self, steps: int) -> None:
        """A round is over."""
        self.ends.append(time.monotonic())
        self.steps.append(steps)

    def result(self, score: dict[str, float], *packages: str) -> dict[str, Any]:
        return {
            "ends": self.ends,
            "steps": self.steps,
            **score,
            "threads": self.threads,
            "versions": {name: version(name) for name in ("torch", *packages)},
        }
