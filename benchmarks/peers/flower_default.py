"""Flower's simulation as its quickstart leaves it: default resources, and a client that starts anew in every call.

By default Flower gives a client two cores, so two cores run one client at a time, with two threads.  The client builds
its model and a DataLoader over its samples whenever it is called, as the PyTorch quickstart does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, TensorDataset

from peers.flower import simulate
from peers.workload import BATCH, LEARNING_RATE, Files

client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that the server names, from the server's model."""
    config = message.content["config"]
    files = Files(Path(config["files"]))
    torch.manual_seed(config["server-round"] * 100_000 + config["client"])
    model = files.model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = files.client(config["client"])
    dense = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.asarray(x.toarray()))
    loader = DataLoader(TensorDataset(dense, y), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    model.train()
    for batch, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(batch), labels).backward()
        optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y), "steps": len(loader)}),
        }
    )
    return Message(content=content, reply_to=message)


def run(directory: Path, rounds: int) -> dict[str, Any]:
    """Flower's FedAvg for ``rounds`` rounds with the resources it gives by default."""
    return simulate(client_app, directory, rounds, {}, "1 Ray worker of 2 threads, Flower's default")
