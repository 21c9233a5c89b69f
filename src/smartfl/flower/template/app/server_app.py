"""What the server does."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from smartfl.aggregators import SmartFL
from smartfl.flower import AggregatorStrategy
from smartfl.rng import seeded

from .task import digits, new_model, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds; SmartFL weighs the clients on the server's own samples."""
    settings: dict[str, Any] = dict(context.run_config)
    torch.set_num_threads(1)
    data = digits(settings["clients"], settings["seed"])
    with seeded(settings["seed"], "model", 0):
        net = new_model()
    strategy = AggregatorStrategy(
        SmartFL(),
        model=net,
        proxy=data.proxy,
        seed=settings["seed"],
        checkpoint=settings["out"] or None,
        min_available_nodes=settings["clients"],
        fraction_evaluate=0.0,
    )

    labels = data.dataset.test_labels
    inputs = data.dataset.test[torch.arange(len(labels))]

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        tested = new_model()
        tested.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord(dict(test(tested, inputs, labels)))

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net.state_dict()),
        num_rounds=settings["rounds"],
        evaluate_fn=evaluate,
    )
