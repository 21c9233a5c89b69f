"""Flower's simulation: a ServerApp with its FedAvg, a ClientApp, and Ray with one core per client.

Made to be fast within what Flower offers: data are mapped once per Ray worker, a client's model is built once per
worker, batches are plain tensors, and there is no evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from peers.workload import CORES, Files, Log, local_training

client_app = ClientApp()


@cache
def opened(directory: str) -> tuple[Files, nn.Module]:
    """The files and a model to train in, kept by each Ray worker between clients and rounds."""
    torch.set_num_threads(1)
    files = Files(Path(directory))
    return files, files.model()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that the server names, from the server's model."""
    config = message.content["config"]
    files, model = opened(config["files"])
    torch.manual_seed(config["server-round"] * 100_000 + config["client"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = files.client(config["client"])
    steps = local_training(model, x, y)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y), "steps": steps}),
        }
    )
    return Message(content=content, reply_to=message)


class Measured(FedAvg):
    """FedAvg on the given cohorts: which node plays a client does not matter, as nodes keep nothing."""

    def __init__(self, files: Files, log: Log) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.files, self.log = files, log

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        cohort = self.files.cohorts[server_round - 1]
        while len(nodes := list(grid.get_node_ids())) < len(cohort):
            time.sleep(0.1)
        return [
            Message(RecordDict({"arrays": arrays, "config": self._config(server_round, client)}), node, "train")
            for node, client in zip(nodes, cohort, strict=False)
        ]

    def _config(self, server_round: int, client: int) -> ConfigRecord:
        return ConfigRecord({"server-round": server_round, "client": client, "files": str(self.files.directory)})

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        answers = list(replies)
        if failed := [reply for reply in answers if reply.has_error()]:
            raise RuntimeError(f"{len(failed)} clients failed: {failed[0].error.reason}")
        aggregated = super().aggregate_train(server_round, answers)
        self.log.finished(sum(int(reply.content["metrics"]["steps"]) for reply in answers))
        return aggregated


def run(directory: Path, rounds: int) -> dict[str, Any]:
    """Flower's FedAvg for ``rounds`` rounds on as many Ray workers as there are cores."""
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    return simulate(client_app, directory, rounds, resources, f"{CORES} Ray workers of 1 thread")


def simulate(
    clients: ClientApp, directory: Path, rounds: int, resources: dict[str, Any], runs_as: str
) -> dict[str, Any]:
    """Run a client app under FedAvg with the resources given to its clients."""
    files = Files(directory)
    log = Log(runs_as)
    model = files.model()
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        result = Measured(files, log).start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())

    ray = {"num_cpus": CORES, "_temp_dir": str(directory.parent / "ray")}
    run_simulation(server_app, clients, files.workload.clients, backend_config={"init_args": ray, **resources})
    return log.result(files.score(model), "flwr", "ray")
