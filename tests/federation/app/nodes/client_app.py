"""A node in NumPy: softmax regression on its own digits, or what its ``fault`` makes of that.

NumPy, because each message starts a process, and importing torch takes longer than everything else here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
Values = dict[str, np.ndarray]


@app.train()
def train(message: Message, context: Context) -> Message:
    fault, number = str(context.node_config["fault"]), int(context.node_config["number"])
    directory, t = Path(str(context.run_config["data"])), int(message.content["config"]["server-round"])
    own = np.load(directory / f"node-{number}.npz")
    inputs, labels = own["inputs"], own["labels"]
    if fault == "killed" and t == 2:  # the script sees this file and kills the node
        (directory / "training").touch()
        time.sleep(600)
    model = {k: a.numpy().copy() for k, a in message.content["arrays"].items()}
    trained = descend(model, inputs, (labels + 1) % 10 if fault == "flip" else labels, seed=1000 * t + number)
    if fault == "nan":
        trained["bias"][3] = np.nan
    if fault == "shape":
        trained["weight"] = trained["weight"].T
    metrics = MetricRecord({"num-examples": 10**12 if fault == "1e12" else len(labels)})
    arrays = ArrayRecord({k: Array(np.ascontiguousarray(v)) for k, v in trained.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def descend(model: Values, inputs: np.ndarray, labels: np.ndarray, seed: int) -> Values:
    """Five epochs of SGD with batches of 16 on softmax regression."""
    weight, bias = model["weight"], model["bias"]
    rng, lr = np.random.default_rng(seed), np.float32(0.5)
    for _ in range(5):
        for index in np.array_split(rng.permutation(len(labels)), max(1, len(labels) // 16)):
            x, y = inputs[index], labels[index]
            logits = x @ weight.T + bias
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(y)), y] -= 1
            p /= np.float32(len(y))
            weight = weight - lr * (p.T @ x)
            bias = bias - lr * p.sum(axis=0)
    result: dict[str, Any] = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    return result
