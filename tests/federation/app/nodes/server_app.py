"""The server: SmartFL with 64 samples of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from torch import nn

from smartfl import Proxy
from smartfl.aggregators import SmartFL
from smartfl.flower import AggregatorStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings: dict[str, Any] = dict(context.run_config)
    torch.set_num_threads(1)
    server = np.load(Path(settings["data"]) / "server.npz")
    proxy = Proxy(torch.from_numpy(server["inputs"]), torch.from_numpy(server["labels"]), 10)
    model = zero_model()
    strategy = AggregatorStrategy(
        SmartFL(),
        model=model,
        proxy=proxy,
        checkpoint=settings["out"],
        min_available_nodes=settings["nodes"],
        fraction_evaluate=0.0,
    )
    test_inputs, test_labels = torch.from_numpy(server["test_inputs"]), torch.from_numpy(server["test_labels"])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        tested = zero_model()
        tested.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            right = tested(test_inputs).argmax(dim=1) == test_labels
        return MetricRecord({"accuracy": float(right.float().mean())})

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=settings["rounds"],
        timeout=settings["timeout"],
        evaluate_fn=evaluate,
    )


def zero_model() -> nn.Module:
    model = nn.Linear(64, 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model
