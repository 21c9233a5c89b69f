"""Server steps compared on the same client models: record the matrices of real rounds once, then replay them.

    python benchmarks/replay.py record STUDY.toml --method smartfl --at 3,10,30 --dir replay
        [--where AXIS=VALUE …] [--set KEY=VALUE …]
    python benchmarks/replay.py compare --dir replay [--at 3,10] [--only VARIANT,…] --out results/replay/records.jsonl
    python benchmarks/replay.py table --out results/replay/records.jsonl

``record`` runs the study's experiments under one method and leaves, for every round named, what the server had: rows,
sample counts, global model, who lied, and what the rule remembered.  ``compare`` hands each of them to every variant
below, in seconds, and appends a line per variant: test accuracy of the result, weight on attackers, and the proxy loss
beside the best single client's, which the paper's proof takes for an upper bound.  Matrices are large and stay out of
the repository.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from smartfl.aggregators.proxy import client_logits
from smartfl.data.dataset import Dataset
from smartfl.experiment.files import read_experiment, write_experiment
from smartfl.experiment.presets import read_study
from smartfl.experiment.schema import Experiment
from smartfl.experiment.study import Selection
from smartfl.registry import build
from smartfl.runs.environment import revision
from smartfl.simulation import Simulation
from smartfl.types import Aggregate, Proxy, Rule, Server, Updates

PARTS = ("hopeless", "leave one out", "held out", "region", "mirror", "averaging", "best client", "paired test")
WHOLE = {"layered": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "uniform": {"name": "uniform"},
    "literal": {"name": "smartfl_literal", "server_epochs": 50},
    "centred": {"name": "smartfl", "variant": "centred", "server_epochs": 50},
    "SmartFL": {"name": "smartfl", "server_epochs": 50},
    # What follows has one weight a client.
    "one weight": {"name": "smartfl", "server_epochs": 50, **WHOLE},
    "free scale": {"name": "smartfl", "penalty": 0.0, "server_epochs": 50, **WHOLE},
    "no memory": {"name": "smartfl", "server_epochs": 50, "mistrust": 0.0, **WHOLE},
    "no restraint": {"name": "smartfl", "server_epochs": 50, "restraint": 0.0, **WHOLE},
    "20 epochs": {"name": "smartfl", **WHOLE},
    "full price": {"name": "smartfl", "penalty": 1.0, "server_epochs": 50, **WHOLE},
    "start uniform": {"name": "smartfl", "init": "uniform", "server_epochs": 50, **WHOLE},
    "unlabelled": {"name": "smartfl_unlabelled"},
    **{part: {"name": "ablation:Ablated", "part": part, "server_epochs": 50, **WHOLE} for part in PARTS},
}
CHUNK = 1000


@dataclass(frozen=True, eq=False)
class Tap:
    """A rule that also keeps what it was given in some rounds."""

    rule: Rule
    rounds: frozenset[int]
    kept: dict[int, tuple[Updates, dict[str, Any]]]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copying asks for before there is a rule to ask
            raise AttributeError(name)
        return getattr(self.rule, name)

    def __call__(self, updates: Updates, server: Server | None = None) -> Aggregate:
        if server is not None and server.round in self.rounds:
            self.kept[server.round] = updates.with_matrix(updates.matrix.clone()), deepcopy(self.rule.state_dict())
        return self.rule(updates, server)


def record(experiment: Experiment, rounds: frozenset[int], directory: Path) -> None:
    """Run until the last of ``rounds`` and save each of them."""
    stem = f"{experiment.name}-{experiment.digest}"
    if all((directory / f"{stem}-{t}.safetensors").exists() for t in rounds):
        return
    simulation = Simulation(experiment.model_copy(update={"rounds": max(rounds), "evaluate_every": max(rounds)}))
    tap = Tap(simulation.rules[0], rounds, {})
    simulation.rules = [tap]
    who: dict[int, tuple[int, ...]] = {line.round: line.malicious for line in simulation}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{stem}.toml").write_text(write_experiment(experiment), encoding="utf-8")
    for t, (updates, state) in tap.kept.items():
        tensors = {
            "matrix": updates.matrix,
            "num_examples": updates.num_examples,
            "origin": updates.origin.clone(),
            "ids": torch.tensor(updates.ids),
            "malicious": torch.tensor([i in who[t] for i in updates.ids]),
        }
        tensors |= {f"state.{k}": torch.as_tensor(v) for k, v in state.items()}
        save_file(tensors, directory / f"{stem}-{t}.safetensors")
        print(f"{stem}, round {t}: {tuple(updates.matrix.shape)}", flush=True)


@dataclass(frozen=True, eq=False)
class Scene:
    """A recorded round, with the samples that judge a result."""

    experiment: Experiment
    round: int
    updates: Updates
    malicious: Tensor
    memory: dict[str, Any]
    model: torch.nn.Module
    proxy: Proxy
    dataset: Dataset


def scenes(directory: Path) -> Iterator[Scene]:
    """Every recorded round; what the server knows is built again from the experiment."""
    for file in sorted(directory.glob("*.toml")):
        experiment = read_experiment(file)
        simulation = Simulation(experiment, executor="serial")
        proxy = simulation.federation.proxy
        assert proxy is not None
        for path in sorted(directory.glob(f"{file.stem}-*.safetensors")):
            held = load_file(path)
            updates = Updates.of(
                held["matrix"], held["num_examples"], held["origin"], ids=held["ids"].tolist(), spec=simulation.specs[0]
            )
            t = int(path.stem.rpartition("-")[2])
            memory: dict[str, Any] = {k[6:]: v for k, v in held.items() if k.startswith("state.")}
            if "ids" in memory:
                memory["ids"] = memory["ids"].tolist()
            known = simulation.models[0], proxy, simulation.federation.dataset
            yield Scene(experiment, t, updates, held["malicious"], memory, *known)


@torch.no_grad()
def accuracy(scene: Scene, vector: Tensor) -> float:
    data, right = scene.dataset, 0
    for index in torch.arange(len(data.test_labels)).split(CHUNK):
        logits = scene.updates.spec.functional_call(scene.model, vector, data.test[index])
        right += int((logits.argmax(dim=1) == data.test_labels[index]).sum())
    return right / len(data.test_labels)


@torch.no_grad()
def compare(scene: Scene, only: Sequence[str] = tuple(VARIANTS)) -> Iterator[dict[str, Any]]:
    """A line for every variant named in ``only`` on one recorded round."""
    proxy, labels = scene.proxy, scene.proxy.labels
    assert labels is not None
    alone = client_logits(scene.updates, scene.model, proxy.inputs)
    best = min(float(F.cross_entropy(z.double(), labels).nan_to_num(torch.inf)) for z in alone)
    attack = scene.experiment.attack
    for name in only:
        settings = VARIANTS[name]
        rule = build("aggregators", settings["name"], {k: v for k, v in settings.items() if k != "name"}, "aggregator")
        if getattr(rule, "mistrust", None):
            rule.load_state_dict(scene.memory)
        shown = proxy if rule.needs_proxy == "labelled" else Proxy(proxy.inputs, None, proxy.num_classes)
        server = Server(scene.round, scene.model, shown, torch.Generator().manual_seed(scene.round))
        started = time.process_time()
        with torch.enable_grad():
            result = rule(scene.updates, server)
        seconds = time.process_time() - started
        p = result.coefficients
        logits = scene.updates.spec.functional_call(scene.model, result.vector, proxy.inputs)
        yield {
            "dataset": scene.experiment.data.dataset,
            "alpha": scene.experiment.data.alpha,
            "attack": attack.name if attack.rate else "none",
            "rate": attack.rate,
            "round": scene.round,
            "variant": name,
            "accuracy": round(accuracy(scene, result.vector), 4),
            "malicious_mass": None if p is None else round(float(p[scene.malicious].sum()), 4),
            "effective_clients": None if p is None else round(float(p.sum() ** 2 / p.square().sum()), 2),
            "proxy_loss": float(f"{F.cross_entropy(logits, labels).item():.5g}"),
            "best_client_loss": float(f"{best:.5g}"),
            "seconds": round(seconds, 3),
            "digest": scene.experiment.digest,
            "revision": revision(),
        }


def table(lines: list[dict[str, Any]]) -> str:
    """Rows are recorded rounds, columns variants: test accuracy in percent, in brackets the weight on attackers."""
    names = list(dict.fromkeys(line["variant"] for line in lines))
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        attack = f"{line['attack']} {line['rate']:g}" if line["rate"] else "none"
        row = f"{line['dataset']}, α {line['alpha']:g}, {attack}, round {line['round']}"
        mass = f" ({line['malicious_mass']:.2f})" if line["rate"] and line["malicious_mass"] is not None else ""
        rows.setdefault(row, {})[line["variant"]] = f"{100 * line['accuracy']:.1f}{mass}"
    head = "| client models | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names)
    return "\n".join([head, *(f"| {k} | " + " | ".join(v.get(n, "–") for n in names) + " |" for k, v in rows.items())])


def summary(lines: list[dict[str, Any]]) -> str:
    """Rows are variants, columns a dataset without and with attackers: means over recorded rounds, as in `table`."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in lines:
        column = f"{line['dataset']}, {'attackers' if line['rate'] else 'no attack'}"
        cells.setdefault(line["variant"], {}).setdefault(column, []).append(line)
    columns = sorted({column for row in cells.values() for column in row})

    def shown(cell: list[dict[str, Any]]) -> str:
        text = f"{100 * fmean(line['accuracy'] for line in cell):.1f}"
        masses = [line["malicious_mass"] for line in cell if line["rate"] and line["malicious_mass"] is not None]
        return f"{text} ({fmean(masses):.2f})" if masses else text

    head = "| | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns)
    rows = {name: [shown(row[c]) if c in row else "–" for c in columns] for name, row in cells.items()}
    return "\n".join([head, *(f"| {name} | " + " | ".join(row) + " |" for name, row in rows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare", "table"])
    parser.add_argument("study", nargs="?")
    parser.add_argument("--method", default="smartfl")
    parser.add_argument("--at")
    parser.add_argument("--only", default=",".join(VARIANTS))
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--dir", type=Path, default=Path("replay"))
    parser.add_argument("--out", type=Path, default=Path("results/replay/records.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = frozenset(map(int, arguments.at.split(","))) if arguments.at else None
    if arguments.what == "record":
        where = {
            axis: tuple(values.split(",")) for axis, _, values in (text.partition("=") for text in arguments.where)
        }
        chosen = Selection(only=(arguments.method,), where=where, seeds=1, settings=tuple(arguments.set))
        for trial in read_study(arguments.study).trials(chosen):
            record(trial.experiment, rounds or frozenset({3, 10, 30}), arguments.dir)
        return
    if arguments.what == "compare":
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("a", encoding="utf-8") as file:
            for scene in scenes(arguments.dir):
                if rounds is not None and scene.round not in rounds:
                    continue
                for line in compare(scene, arguments.only.split(",")):
                    file.write(json.dumps(line) + "\n")
                    file.flush()
    lines = [json.loads(line) for line in arguments.out.read_text(encoding="utf-8").splitlines()]
    print(summary(lines), table(lines), sep="\n\n")


if __name__ == "__main__":
    main()
