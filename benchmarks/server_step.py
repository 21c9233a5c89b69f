"""SmartFL's server step beside the same number of plain forward and backward passes.

    python benchmarks/server_step.py [--repeat 5] [--threads 1 2] [--model resnet8] [--report]

ResNet-8 on CIFAR-10 shapes, 32 clients, 128 proxy samples, 20 epochs of 4 mini-batches of 32.  Per number of threads:
the whole rule in its variants and 80 plain passes take turns, the best of ``--repeat`` counts; then every part alone.
Appends to results/server-step/records.jsonl and writes results/server-step/README.md from the newest record.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from record import RESULTS, append, newest, provenance

from smartfl.aggregators.smartfl import SmartFL
from smartfl.executors.memory import keep_freed_memory
from smartfl.measure.clock import best, seconds, threads
from smartfl.measure.server_step import ServerStep
from smartfl.measure.training import WORKLOADS

HERE = RESULTS / "server-step"
TARGET = 1.15


def measure(model: str, repeat: int, count: int) -> dict[str, Any]:
    """Everything with ``count`` threads."""
    workload = next(w for w in WORKLOADS if w.model == model)
    step = ServerStep(workload)
    plain = step.plain_step()

    def plain_run() -> None:
        for _ in range(step.steps):
            plain()

    def first_round() -> None:
        step.aggregate(SmartFL())  # a new one every time: it hears all clients

    runs = {
        "plain": plain_run,
        "centred": partial(step.aggregate, SmartFL("centred")),
        "calibrated": first_round,
        "settled": partial(step.aggregate, step.settled()),
    }
    with threads(count):
        plain()
        step.aggregate(SmartFL(server_epochs=1))
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(repeat):
            order = list(runs)[turn % len(runs) :] + list(runs)[: turn % len(runs)]
            for name in order:
                taken[name].append(seconds(runs[name]))
        parts = {
            name: {"seconds": best(part.work, 0.4, least=5), "calls": part.calls} for name, part in step.parts().items()
        }
    fewest = {name: min(values) for name, values in taken.items()}
    return {
        "threads": count,
        "seconds": taken,
        "ratio": {name: fewest[name] / fewest["plain"] for name in runs if name != "plain"},
        "parts": parts,
    }


def report(record: dict[str, Any]) -> str:
    """The README of the results."""
    lines = [
        "# SmartFL's server step",
        "",
        f"`python benchmarks/server_step.py`: {record['model']}, {record['parameters']:,} parameters, "
        f"{record['clients']} clients, {record['samples']} proxy samples, {record['steps']} mini-batches of 32. "
        "“plain” is as many forward and backward passes of the same model in the same memory layout, without an "
        f"optimiser. Best of {record['repeat']}, taken in turns. Target for the ratio: {TARGET}.",
        "",
        "| threads | plain s | centred s | ratio | calibrated, round 1: s | ratio | later rounds: s | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in record["runs"]:
        fewest = {name: min(values) for name, values in run["seconds"].items()}
        ratio = run["ratio"]
        lines.append(
            f"| {run['threads']} | {fewest['plain']:.2f} | {fewest['centred']:.2f} | {ratio['centred']:.3f} | "
            f"{fewest['calibrated']:.2f} | {ratio['calibrated']:.3f} | "
            f"{fewest['settled']:.2f} | {ratio['settled']:.3f} |"
        )
    lines += [
        "",
        "In round 1 all clients are heard; who was heard in four rounds is not heard again. What round 1 goes to:",
        "",
    ]
    for run in record["runs"]:
        whole = sum(part["seconds"] * part["calls"] for part in run["parts"].values())
        lines += [
            f"| {run['threads']} thread(s): part | ms each | calls | share |",
            "|---|---:|---:|---:|",
            *(
                f"| {name} | {1e3 * part['seconds']:.3f} | {part['calls']} | "
                f"{100 * part['seconds'] * part['calls'] / whole:.1f} % |"
                for name, part in run["parts"].items()
            ),
            "",
        ]
    return "\n".join([*lines, provenance(record), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--model", default="resnet8", choices=[w.model for w in WORKLOADS])
    parser.add_argument("--report", action="store_true", help="only write the README from the newest record")
    options = parser.parse_args()
    if not options.report:
        keep_freed_memory()  # as every simulation does
        step = ServerStep(next(w for w in WORKLOADS if w.model == options.model))
        runs = [measure(options.model, options.repeat, count) for count in options.threads]
        record = {
            "model": options.model,
            "clients": len(step.updates),
            "parameters": step.updates.spec.num_parameters,
            "samples": len(step.proxy),
            "steps": step.steps,
            "repeat": options.repeat,
            "runs": runs,
        }
        append(HERE / "records.jsonl", record)
    text = report(newest(HERE / "records.jsonl"))
    (HERE / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
