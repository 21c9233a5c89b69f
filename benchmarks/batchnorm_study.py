"""Which treatment of BatchNorm gives the best model, for the same client models?

    python benchmarks/batchnorm_study.py RUN_DIR --cohorts 3 --out results/batchnorm/alpha-0.01.jsonl

Takes up a run at its last checkpoint, trains a few cohorts from that global model, and aggregates each cohort by
FedAvg, uniform weights and SmartFL under every BatchNorm mode.  Equal information: FedAvg and uniform may re-estimate
statistics on the same proxy inputs.  One JSON line per cohort, rule and mode, with the test accuracy.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.batchnorm import moment_matched, reestimate
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.smartfl import SmartFL
from smartfl.experiment.build import with_rule
from smartfl.experiment.files import read_experiment
from smartfl.rng import torch_stream
from smartfl.runs.checkpoint import load_checkpoint
from smartfl.runs.environment import revision
from smartfl.simulation import Simulation
from smartfl.types import Aggregate, Server, Updates

MODES = ("mixed", "detached", "moments", "train", "reestimate")
SMARTFL: dict[str, dict[str, Any]] = {
    "smartfl literal": {"variant": "literal"},
    "smartfl centred": {"variant": "centred"},
    "smartfl free scale": {"penalty": 0.0, "layered": False},
    "smartfl calibrated": {"layered": False},
}


class Recorder(FedAvg):
    """FedAvg that keeps the updates it saw."""

    seen: tuple[Updates, Server] | None = None

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        assert server is not None
        clone = deepcopy(updates.matrix)
        object.__setattr__(self, "seen", (updates.with_matrix(clone), server))
        return super().aggregate(updates, server)


def evaluate(simulation: Simulation, vector: Tensor) -> tuple[float, float]:
    """Test accuracy and loss of one model."""
    data, spec, model = simulation.federation.dataset, simulation.specs[0], simulation.models[0].eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for index in torch.arange(len(data.test_labels)).split(500):
            logits = spec.functional_call(model, vector, data.test[index].contiguous(memory_format=torch.channels_last))
            labels = data.test_labels[index]
            correct += int((logits.argmax(dim=1) == labels).sum())
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
    return correct / len(data.test_labels), loss / len(data.test_labels)


def variants(
    updates: Updates, server: Server, seed: int, t: int, done: set[tuple[str, str]]
) -> dict[tuple[str, str], Tensor]:
    """The aggregated model of every rule and mode that is not done."""
    assert server.model is not None
    assert server.proxy is not None
    inputs, found = server.proxy.inputs, {}
    n = len(updates)
    for rule, p in (("fedavg", updates.weights), ("uniform", torch.full((n,), 1 / n, dtype=torch.float64))):
        mixed = updates.mix(p)
        found[rule, "mixed"] = mixed
        found[rule, "moments"] = moment_matched(updates, p)
        found[rule, "reestimate"] = reestimate(server.model, updates.spec, mixed, inputs)
    for name, settings in SMARTFL.items():
        for mode in MODES:
            if (name, mode) not in done:
                fresh = Server(server.round, server.model, server.proxy, torch_stream(seed, "server", t, 0))
                step = SmartFL(batchnorm=mode, **settings)  # type: ignore[arg-type]
                found[name, mode] = step(updates, fresh).vector
    return {key: vector for key, vector in found.items() if key not in done}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--cohorts", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--averages", action="store_true", help="FedAvg and uniform weights only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    state = load_checkpoint(arguments.run / "checkpoints")
    assert state is not None, f"{arguments.run} has no checkpoint"
    experiment = read_experiment(arguments.run / "experiment.toml")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    start = state.round
    # Whatever rule made the run, the server holds the proxy samples that SmartFL would have.
    experiment = with_rule(experiment, "smartfl")
    experiment = experiment.model_copy(update={"rounds": start + arguments.cohorts, "evaluate_every": 10**9})
    simulation = Simulation(experiment, executor="serial")
    simulation.restore(state)
    recorder = Recorder()
    vectors = [v.clone() for v in state.vectors]
    simulation.rules = [recorder]
    # The recorder asks for no labels; the rules under study do.
    object.__setattr__(recorder, "needs_proxy", "labelled")
    old = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    for record in simulation:
        started = time.perf_counter()
        assert recorder.seen is not None
        updates, server = recorder.seen
        done = {(line["rule"], line["batchnorm"]) for line in old if line["cohort"] == record.round}
        if arguments.averages:
            done |= {(name, mode) for name in SMARTFL for mode in MODES}
        models = variants(updates, server, experiment.seed, record.round, done)
        with arguments.out.open("a", encoding="utf-8") as file:
            for (rule, mode), vector in models.items():
                accuracy, loss = evaluate(simulation, vector)
                line = {
                    "alpha": experiment.data.alpha,
                    "partition": experiment.data.partition,
                    "after_round": start,
                    "cohort": record.round,
                    "rule": rule,
                    "batchnorm": mode,
                    "accuracy": round(accuracy, 4),
                    "loss": round(loss, 4),
                    "revision": revision(),
                }
                file.write(json.dumps(line) + "\n")
                print(line, flush=True)
        print(f"cohort {record.round}: {time.perf_counter() - started:.0f} s", flush=True)
        simulation.state.vectors = [v.clone() for v in vectors]  # every cohort starts from the same global model


if __name__ == "__main__":
    main()
