"""What a node does."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from smartfl.clients.fedprox import FedProx
from smartfl.flower import ClientMod
from smartfl.rng import torch_stream

from .task import digits, new_model, test, train

app = ClientApp(mods=[ClientMod(FedProx(mu=0.0))])  # mu > 0 holds clients near the global model


@app.train()
def train_message(message: Message, context: Context) -> Message:
    """Train the model that came, and send it back."""
    settings: dict[str, Any] = dict(context.run_config)
    net, inputs, labels = _task(message, context)
    torch.set_num_threads(1)
    round_number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    order = torch_stream(settings["seed"], "client", round_number, int(context.node_config["partition-id"]))
    steps = train(net, inputs, labels, settings["lr"], settings["batch-size"], settings["epochs"], order)
    metrics = MetricRecord({"num-examples": len(labels), "num-steps": steps})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_message(message: Message, context: Context) -> Message:
    """Test the model that came on the node's own samples."""
    net, inputs, labels = _task(message, context)
    metrics = MetricRecord({"num-examples": len(labels), **test(net, inputs, labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query("partition")
def partition(message: Message, context: Context) -> Message:
    """Which partition this is: the simulation's nodes have no names, so the server asks."""
    number = int(context.node_config["partition-id"])
    return Message(RecordDict({"metrics": MetricRecord({"partition-id": number})}), reply_to=message)


def _task(message: Message, context: Context) -> tuple[nn.Module, Tensor, Tensor]:
    net = new_model()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    data = digits(int(context.node_config["num-partitions"]), int(context.run_config["seed"]))
    index = data.shards[int(context.node_config["partition-id"])]
    return net, data.dataset.train[index], data.dataset.train_labels[index]
