"""Who is held to contradict the labels, and who would have been by other rules.

    python benchmarks/camps.py run --out results/camps/records.jsonl
    python benchmarks/camps.py table --out results/camps/records.jsonl

``run`` trains with SmartFL in every setting below and appends a line per round: for each client of the round its
knowledge k (smartfl.aggregators.knowledge, on the samples that SmartFL hears it on) and the cosine c of its update with
the server's way down.  ``table`` says in how many rounds SmartFL's rule (camps of k) holds anybody to contradict, and
how many honest clients at the most; and how many of the honest clients and of the attackers seen by the last round are
then held to contradict by it, by camps of c, and by signs, that is Σ c + ½ c̄ ≤ 0, which was the rule for nets.
Settings that are on record are not run again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import torch
from record import to_run
from torch import Tensor

from smartfl.aggregators.agreement import agreement
from smartfl.aggregators.calibration import CalibratedLoss
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.knowledge import knowledge
from smartfl.aggregators.mistrust import Mistrust
from smartfl.experiment.schema import Experiment
from smartfl.runs.environment import revision
from smartfl.simulation import Simulation
from smartfl.types import Updates

TEXT = {"data": {"dataset": "20newsgroups", "partition": "feddf"}, "model": {"name": "logistic"}}
RAW = {"data": {"dataset": "20newsgroups", "partition": "hsu", "options": {"norm": "none"}}, "model": TEXT["model"]}
MNIST = {"data": {"dataset": "mnist", "partition": "feddf"}, "model": {"name": "convnet"}}
CIFAR = {"data": {"dataset": "cifar10", "partition": "hsu", "augment": False}, "model": {"name": "resnet8"}}

SETTINGS: dict[str, tuple[dict[str, Any], float, str, float, int]] = {  # base, alpha, attack, rate, rounds
    "text, none": (TEXT, 0.01, "", 0, 20),
    "text, flip 0.4, alpha 1": (TEXT, 1.0, "label_flip", 0.4, 20),
    "text, flip 0.7": (TEXT, 0.01, "label_flip", 0.7, 20),
    "text, omniscient 0.7": (TEXT, 0.01, "omniscient", 0.7, 20),
    "text, Fang 0.7": (TEXT, 0.01, "fang_median", 0.7, 20),
    "text not normalised, none, alpha 0.16": (RAW, 0.16, "", 0, 100),
    "MNIST, none": (MNIST, 0.01, "", 0, 10),
    "MNIST, flip 0.7": (MNIST, 0.01, "label_flip", 0.7, 10),
    "MNIST, omniscient 0.7": (MNIST, 0.01, "omniscient", 0.7, 10),
    "MNIST, Fang 0.7": (MNIST, 0.01, "fang_median", 0.7, 10),
    "CIFAR-10, none": (CIFAR, 0.01, "", 0, 8),
    "MNIST, none, alpha 1": (MNIST, 1.0, "", 0, 15),
    "MNIST, flip 0.7, alpha 1": (MNIST, 1.0, "label_flip", 0.7, 15),
    "MNIST, omniscient 0.4, alpha 1": (MNIST, 1.0, "omniscient", 0.4, 15),
    "MNIST, Fang 0.7, alpha 1": (MNIST, 1.0, "fang_median", 0.7, 15),
    "CIFAR-10, none, alpha 1": (CIFAR, 1.0, "", 0, 8),
    "CIFAR-10, flip 0.4, alpha 1": (CIFAR, 1.0, "label_flip", 0.4, 8),
    "CIFAR-10, omniscient 0.7, alpha 1": (CIFAR, 1.0, "omniscient", 0.7, 8),
    "CIFAR-10, Fang 0.4, alpha 1": (CIFAR, 1.0, "fang_median", 0.4, 12),
}


RULES = ("camps", "camps of c", "signs")


def experiment(name: str) -> Experiment:
    base, alpha, attack, rate, rounds = SETTINGS[name]
    linear = base["model"]["name"] == "logistic"
    return Experiment.of(
        {
            **base,
            "rounds": rounds,
            "evaluate_every": rounds,
            "data": {**base["data"], "clients": 80, "alpha": alpha, "proxy": {"size": 128}},
            "client": {"participation": 0.2 if base is CIFAR else 0.4},
            "attack": {"name": attack, "rate": rate} if attack else {"rate": 0.0},
            "aggregator": {"name": "smartfl", "server_epochs": 20 if linear or base is CIFAR else 50},
        }
    )


@dataclass
class Watch:
    """``agreement`` that keeps the cosines and computes the knowledge of the same clients."""

    cosines: list[float] = field(default_factory=list)
    knowledge: list[float] = field(default_factory=list)

    def __call__(self, hull: Hull, updates: Updates, loss: CalibratedLoss) -> Tensor:
        cosines = agreement(hull, updates, loss)  # the loss has now seen the logits of the global model
        opinions = hull.opinions(range(len(updates)))
        heard = slice(opinions.shape[1])
        self.cosines = cosines.tolist()
        self.knowledge = knowledge(opinions, loss.latest[heard], loss.labels[heard], loss.weights[heard]).tolist()
        return cosines


def run(name: str, out: Path) -> None:
    watch, lines = Watch(), []
    with mock.patch("smartfl.aggregators.smartfl.agreement", watch):
        for record in Simulation(experiment(name), executor="serial"):
            line = {
                "setting": name,
                "revision": revision(),
                "round": record.round,
                "ids": record.ids,
                "malicious": record.malicious,
                "knowledge": [round(k, 5) for k in watch.knowledge],
                "cosines": [round(c, 5) for c in watch.cosines],
            }
            lines.append(json.dumps(line) + "\n")
    with out.open("a") as file:  # whole settings only
        file.writelines(lines)


def uphill(cosines: list[list[float]]) -> list[bool]:
    """Σ c + ½ c̄ ≤ 0 of every client's ``cosines``, c̄ the mean of their means; nobody if nobody has Σ c > 0."""
    usual = fmean(map(fmean, cosines)) / 2
    return [sum(c) + usual <= 0 for c in cosines] if any(sum(c) > 0 for c in cosines) else [False] * len(cosines)


def take_up(past: Mistrust, ids: list[int], numbers: list[float]) -> None:
    """As SmartFL does it: a client is heard four times."""
    heard = past.to_hear(ids)
    if heard:
        k = torch.tensor([numbers[place] for place in heard], dtype=torch.float64)
        past.learn([ids[place] for place in heard], k, breadth=torch.zeros_like(k))


def held(rounds: list[dict[str, Any]]) -> tuple[list[set[int]], dict[str, tuple[int, int]]]:
    """Who is held to contradict by SmartFL's rule after every round; and after the last one, of honest clients and of
    attackers, how many are by every rule, and of how many."""
    by_rule, by_cosines, cosines = Mistrust(), Mistrust(), defaultdict[int, list[float]](list)
    malicious: set[int] = set()
    accused: list[set[int]] = []
    for line in rounds:
        malicious.update(line["malicious"])
        take_up(by_rule, line["ids"], line["knowledge"])
        take_up(by_cosines, line["ids"], line["cosines"])
        for i, cosine in zip(line["ids"], line["cosines"], strict=True):
            cosines[i].append(cosine)
        seen = list(cosines)
        accused.append(set(compress(seen, by_rule.contradict(seen).tolist())))
    rules = {
        "camps": by_rule.contradict(seen).tolist(),
        "camps of c": by_cosines.contradict(seen).tolist(),
        "signs": uphill(list(cosines.values())),
    }
    sides = {"honest": [i not in malicious for i in seen], "attackers": [i in malicious for i in seen]}
    return accused, {
        f"{side} by {rule}": (sum(a and b for a, b in zip(found, members, strict=True)), sum(members))
        for rule, found in rules.items()
        for side, members in sides.items()
    }


def table(lines: list[dict[str, Any]]) -> str:
    rounds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        rounds[line["setting"]].append(line)
    columns = [f"{side} by {rule}" for rule in RULES for side in ("honest", "attackers")]
    head = f"| setting | rounds | that accuse | most honest | {' | '.join(columns)} |"
    rows = [head, "|---|---:|---:|---:|" + "---:|" * len(columns)]
    for name, past in rounds.items():
        accused, counts = held(past)
        malicious = {i for line in past for i in line["malicious"]}
        cells = [f"{n} of {of}" if of else "–" for n, of in (counts[column] for column in columns)]
        first = f"{name} | {len(past)} | {sum(map(bool, accused))} | {max(len(a - malicious) for a in accused)}"
        rows.append(f"| {first} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    out, lines = to_run(__doc__, table)
    torch.set_num_threads(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    for name in SETTINGS:
        if name not in {line["setting"] for line in lines}:
            run(name, out)


if __name__ == "__main__":
    main()
