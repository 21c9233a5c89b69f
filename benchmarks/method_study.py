"""SmartFL's server step, one part at a time: the same experiments under every variant.

    python benchmarks/method_study.py digits --out results/method/digits.jsonl
    python benchmarks/method_study.py news --rounds 20 --out results/method/news.jsonl

Resumable: a cell whose line is in the file is not run again.  One JSON line per cell, accuracy and malicious mass per
round.  ``--table`` prints the file as Markdown.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from smartfl.experiment.federation import load_dataset
from smartfl.experiment.schema import Experiment
from smartfl.runs.environment import revision
from smartfl.simulation import Simulation

TASKS: dict[str, dict[str, Any]] = {
    "digits": {
        "rounds": 15,
        "data": {"dataset": "digits"},
        "model": {"name": "mlp"},
        "client": {"participation": 0.6, "lr": 1e-2, "epochs": 2},
    },
    "news": {
        "rounds": 20,
        "data": {"dataset": "20newsgroups"},
        "model": {"name": "logistic"},
        "client": {"participation": 0.4},
    },
    "mnist": {
        "rounds": 12,
        "data": {"dataset": "mnist"},
        "model": {"name": "convnet"},
        "client": {"participation": 0.6},
    },
}

SETTINGS = [
    (0.01, "none", 0.0),
    (1.0, "none", 0.0),
    (0.1, "label_flip", 0.4),
    (0.1, "label_flip", 0.7),
    (0.1, "omniscient", 0.4),
    (0.1, "omniscient", 0.7),
]

VARIANTS: dict[str, dict[str, Any]] = {
    "uniform": {"name": "uniform"},
    "literal": {"name": "smartfl_literal"},
    "centred": {"name": "smartfl", "variant": "centred"},
    "free scale": {"name": "smartfl", "penalty": 0.0, "layered": False},
    "calibrated": {"name": "smartfl", "layered": False},
    "quarter price": {"name": "smartfl", "penalty": 0.25, "layered": False},
    "full price": {"name": "smartfl", "penalty": 1.0, "layered": False},
    "double price": {"name": "smartfl", "penalty": 2.0, "layered": False},
    "50 epochs": {"name": "smartfl", "server_epochs": 50, "layered": False},
}


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["task"], line["alpha"], line["attack"], line["rate"], line["variant"], line["seed"], line["rounds"]


def table(lines: list[dict[str, Any]], last: int = 5) -> str:
    """Mean accuracy of the last rounds and mean malicious mass, settings by variants; seeds averaged."""
    names = [v for v in VARIANTS if any(line["variant"] == v for line in lines)]
    rows = ["| setting | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for alpha, attack, rate in SETTINGS:
        here = [li for li in lines if (li["alpha"], li["attack"], li["rate"]) == (alpha, attack, rate)]
        if not here:
            continue
        cells = []
        for name in names:
            mine = [line for line in here if line["variant"] == name]
            if not mine:
                cells.append("–")
                continue
            accuracy = sum(sum(line["accuracy"][-last:]) / last for line in mine) / len(mine)
            mass = sum(line["malicious_mass"] for line in mine) / len(mine)
            cells.append(f"{accuracy:.3f}" + (f" ({mass:.2f})" if rate else ""))
        best = max(cells, key=lambda cell: float(cell.split()[0]) if cell != "–" else 0.0)
        cells = [f"**{cell}**" if cell.split()[0] == best.split()[0] else cell for cell in cells]
        rows.append(f"| α {alpha:g}, {attack}{f' {rate:g}' if rate else ''} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    if arguments.table:
        print(table(done))
        return
    torch.set_num_threads(1)
    names = arguments.variants.split(",")
    finished = {key(line) for line in done}
    task = TASKS[arguments.task]
    rounds = arguments.rounds or task["rounds"]
    dataset = None
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for alpha, attack, rate in SETTINGS:
            for name in names:
                line: dict[str, Any] = {
                    "task": arguments.task,
                    "alpha": alpha,
                    "attack": attack,
                    "rate": rate,
                    "variant": name,
                    "seed": seed,
                    "rounds": rounds,
                }
                if key(line) in finished:
                    continue
                experiment = Experiment.of(
                    {
                        **task,
                        "seed": seed,
                        "rounds": rounds,
                        "data": {**task["data"], "alpha": alpha},
                        "attack": {"name": attack, "rate": rate} if rate else {},
                        "aggregator": VARIANTS[name],
                    }
                )
                dataset = dataset or load_dataset(experiment)
                started = time.perf_counter()
                records = list(Simulation(experiment, executor="serial", dataset=dataset))
                masses = [record.malicious_mass or 0.0 for record in records]
                line |= {
                    "accuracy": [round(record.accuracy or 0.0, 4) for record in records],
                    "malicious_mass": round(sum(masses) / len(masses), 4),
                    "digest": experiment.digest,
                    "revision": revision(),
                    "seconds": round(time.perf_counter() - started, 1),
                }
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{alpha:g} {attack} {rate:g} {name}: {line['accuracy'][-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
