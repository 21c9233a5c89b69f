"""CPU time of local training: per client and per step of each workload, beside this machine's matrix products.

    SMARTFL_DATA=/path/to/data python benchmarks/training.py [--workloads abcd] [--repeats 5] [--out DIRECTORY]

    a   MNIST, ConvNet 10/20, 750 samples a client, batch 32, Adam
    b   CIFAR-10, ResNet-8, 625 samples a client
    c   20 Newsgroups, logistic regression on sparse rows, 80 clients
    d   digits, MLP, 1,000 clients, 100 of them a round: 1 or 2 samples a client, so that all is overhead

One process, one thread, as a worker has it.  Every repetition times all workloads and one product of two 1024 × 1024
float32 matrices, so that what else the machine does falls on both; the best of each counts.  "of sgemm" is the
arithmetic of a textbook step (torch's own count of forward and backward) per second over that of the product.  Appends
a record to results/training/records.jsonl and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F
from record import RESULTS, append, memory
from torch.utils.flop_counter import FlopCounterMode

from smartfl.executors.bench import Job
from smartfl.executors.cohort import new_board, train_cohort
from smartfl.executors.memory import keep_freed_memory
from smartfl.executors.serial import Serial
from smartfl.experiment.schema import Experiment
from smartfl.simulation import Simulation

SIDE = 1024
WORKLOADS: dict[str, tuple[int, dict[str, Any]]] = {  # clients that are timed, and the experiment
    "a": (4, {"data": {"dataset": "mnist", "clients": 80}, "model": {"name": "convnet"}}),
    "b": (2, {"data": {"dataset": "cifar10", "clients": 80}, "model": {"name": "resnet8"}}),
    "c": (16, {"data": {"dataset": "20newsgroups", "clients": 80}, "model": {"name": "logistic"}}),
    "d": (100, {"data": {"dataset": "digits", "clients": 1000}, "model": {"name": "mlp"}}),
}


@dataclass(frozen=True)
class Workload:
    """A round's local training, ready to run."""

    run: Callable[[], int]
    clients: int
    steps: int
    flop: int

    @classmethod
    def of(cls, name: str) -> Workload:
        clients, tables = WORKLOADS[name]
        tables = {**tables, "data": {**tables["data"], "partition": "iid"}}
        experiment = Experiment.of({**tables, "aggregator": {"name": "fedavg"}})
        simulation = Simulation(experiment, executor="serial")
        data, shards = simulation.federation.dataset, simulation.federation.shards
        board = new_board(simulation.state, simulation.specs, clients, len(data.test_labels))
        crew = Serial(Job.of(simulation.experiment, data, shards, board, simulation.models))
        state, specs, algorithm = simulation.state, simulation.specs, simulation.algorithm
        cohort = list(range(clients))

        def run() -> int:
            (updates,), _ = train_cohort(crew, board, state, specs, shards, algorithm, cohort, frozenset(), 1)
            return int(sum(updates.num_steps))

        batch = data.train[shards[0][: experiment.client.batch_size]]
        with FlopCounterMode(display=False) as counter:
            logits = simulation.models[0].train()(batch)
            F.cross_entropy(logits, data.train_labels[: len(batch)]).backward()
        simulation.models[0].zero_grad()
        return cls(run, clients, run(), counter.get_total_flops())


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def measure(names: str, repeats: int) -> dict[str, Any]:
    """The best times of the workloads."""
    keep_freed_memory()
    torch.set_num_threads(1)
    left, right = torch.rand(2, SIDE, SIDE)
    workloads = {name: Workload.of(name) for name in names}
    best = dict.fromkeys(["sgemm", *names], float("inf"))
    for _ in range(repeats):
        for _ in range(5):
            best["sgemm"] = min(best["sgemm"], seconds(lambda: torch.mm(left, right)))
        for name, workload in workloads.items():
            best[name] = min(best[name], seconds(workload.run))
    peak = 2 * SIDE**3 / best["sgemm"]
    rows = {
        name: {
            "clients": w.clients,
            "steps": w.steps,
            "ms_per_client": 1e3 * best[name] / w.clients,
            "ms_per_step": 1e3 * best[name] / w.steps,
            "of_sgemm": w.flop * w.steps / best[name] / peak if name in "ab" else None,
        }
        for name, w in workloads.items()
    }
    return {"repeats": repeats, "sgemm_gflops": peak / 1e9, "peak_mb": memory()["peak"], "workloads": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="abcd")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "training")
    arguments = parser.parse_args()
    record = measure(arguments.workloads, arguments.repeats)
    append(arguments.out / "records.jsonl", record)
    print(f"sgemm {record['sgemm_gflops']:.0f} GFLOP/s on one core, load {os.getloadavg()[0]:.1f}\n")
    print("| workload | steps per client | ms per client | ms per step | of sgemm |")
    print("|---|---:|---:|---:|---:|")
    for name, r in record["workloads"].items():
        share = "–" if r["of_sgemm"] is None else f"{r['of_sgemm']:.0%}"
        steps = r["steps"] / r["clients"]
        print(f"| {name} | {steps:.1f} | {r['ms_per_client']:.3f} | {r['ms_per_step']:.3f} | {share} |")


if __name__ == "__main__":
    main()
