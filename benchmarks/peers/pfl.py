"""pfl-research: its simulated backend with FederatedAveraging, in one process or several (torchrun).

No evaluation: pfl would evaluate every user before and after the first round, so the metrics are left empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from peers.workload import BATCH, CORES, LEARNING_RATE, Files, Log


class Module(nn.Module):
    """A model with the two methods that pfl asks for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.steps = 0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.model.train()
        self.steps += 1
        return F.cross_entropy(self.model(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class Rounds(TrainingProcessCallback):
    """Notes when a round ends and how many steps it took here; processes add theirs up at the very end."""

    def __init__(self, module: Module, log: Log) -> None:
        self.module, self.log = module, log

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.log.finished(self.module.steps)
        self.module.steps = 0
        return False, Metrics()


def run(directory: Path, rounds: int) -> dict[str, Any] | None:
    """pfl's FederatedAveraging for ``rounds`` rounds; a process has the share of the cores that torchrun leaves it."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    threads = CORES // processes
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    files = Files(directory)
    module = Module(files.model())
    clients: Iterator[int] = (client for cohort in files.cohorts for client in cohort)

    def user(client: int) -> PyTorchTensorDataset:
        # pfl takes batches in the order of the data, so the shuffling is done here.
        x, y = files.client(client)
        order = torch.randperm(len(y))
        x = torch.from_numpy(x[order.numpy()].toarray()) if files.meta["sparse"] else x[order]
        return PyTorchTensorDataset((x, y[order]), user_id=str(client))

    data = FederatedDataset(user, lambda: next(clients))
    model = PyTorchModel(module, torch.optim.Adam, torch.optim.SGD(module.parameters(), lr=1.0))
    log = Log(f"{processes} process{'es' * (processes > 1)} of {threads} thread{'s' * (threads > 1)}")
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=1_000_000,
            train_cohort_size=files.workload.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LEARNING_RATE),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Rounds(module, log)],
        send_metrics_to_platform=False,
    )
    if processes > 1:
        steps = torch.tensor(log.steps)
        torch.distributed.all_reduce(steps)
        log.steps = steps.tolist()
        if torch.distributed.get_rank():
            return None
    return log.result(files.score(module.model), "pfl")
