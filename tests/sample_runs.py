"""Sample run directories, written line by line in the format of DESIGN.md ("A run directory")."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ENVIRONMENT = {
    "smartfl": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "revision": "648c371",
    "platform": "Linux-6.1-x86_64",
    "threads": {"workers": 2, "torch": 1},
}

RULES: dict[str, tuple[float, float, float]] = {
    # final accuracy, speed of learning, weight given to attackers relative to their share (below 0: no weights at all)
    "smartfl": (0.86, 0.10, 0.05),
    "fedavg": (0.52, 0.06, 1.0),
    "uniform": (0.49, 0.06, 1.0),
    "krum": (0.58, 0.07, 0.0),
    "median": (0.63, 0.06, -1.0),
    "trimmed_mean": (0.66, 0.05, -1.0),
    "fltrust": (0.74, 0.08, 0.3),
    "multi_krum": (0.61, 0.05, 0.4),
    "geometric_median": (0.69, 0.05, 0.6),
}


def toml(tables: Mapping[str, Any]) -> str:
    """The few TOML shapes that an experiment has: scalars, then tables, nested ones dotted."""

    def scalar(value: Any) -> str:
        return json.dumps(value)

    def lines(table: Mapping[str, Any], name: str) -> list[str]:
        own = [f"{k} = {scalar(v)}" for k, v in table.items() if not isinstance(v, Mapping)]
        inner = [line for k, v in table.items() if isinstance(v, Mapping) for line in lines(v, f"{name}.{k}")]
        return [f"[{name}]", *own, *inner]

    top = [f"{k} = {scalar(v)}" for k, v in tables.items() if not isinstance(v, Mapping)]
    return "\n".join(top + [x for k, v in tables.items() if isinstance(v, Mapping) for x in lines(v, k)]) + "\n"


def experiment(
    rule: str = "smartfl", seed: int = 0, rounds: int = 20, clients: int = 20, **changes: Any
) -> dict[str, Any]:
    aggregator: dict[str, Any] = {"name": rule}
    if rule == "smartfl":
        aggregator |= {"variant": "calibrated", "server_epochs": 20, "lr": 0.01}
    return {
        "name": "digits-under-attack",
        "seed": seed,
        "rounds": rounds,
        "data": {"dataset": "digits", "clients": clients, "partition": "feddf", "alpha": 0.1, "proxy": {"size": 128}},
        "model": {"name": "mlp"},
        "client": {"algorithm": "plain", "optimizer": "adam", "lr": 0.001, "batch_size": 32, "participation": 0.6},
        "attack": {"name": "label_flip", "rate": 0.4},
        "aggregator": aggregator,
        **changes,
    }


def write_lines(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(r) + "\n" for r in records))


def write_run(folder: Path, tables: dict[str, Any], accuracies: list[float] | None = None) -> Path:
    """A plausible run: accuracy climbs with noise, attackers get the rule's usual share, some clients are dropped."""
    folder.mkdir(parents=True)
    rule, seed, clients = tables["aggregator"]["name"], tables["seed"], tables["data"]["clients"]
    final, speed, share = RULES.get(rule, RULES["smartfl"])
    rng = np.random.default_rng([seed, len(rule)])
    cohorts = np.random.default_rng(seed)
    malicious = set(range(clients)[1::2][: round(clients * tables["attack"].get("rate", 0))])
    rounds, coefficients = [], []
    for r in range(1, tables["rounds"] + 1):
        ids = sorted(int(i) for i in cohorts.choice(clients, max(1, round(clients * 0.6)), replace=False))
        dropped = [{"id": ids.pop(), "reason": "3 values are not finite"}] if r % 7 == 3 and rule == "fedavg" else []
        bad = np.array([i in malicious for i in ids])
        weights = rng.gamma(1.0 if rule == "smartfl" else 30.0, size=len(ids)) * np.where(bad, max(share, 0), 1)
        if rule == "smartfl":
            weights *= rng.random(len(ids)) > 0.2
        if rule == "krum":
            weights = np.eye(len(ids))[rng.integers(len(ids))]
        weights = weights / weights.sum()
        climb = 0.1 + (final - 0.1) * (1 - np.exp(-speed * r)) + rng.normal(0, 0.02)
        accuracy = accuracies[r - 1] if accuracies else float(np.clip(climb, 0, 1))
        none = share < 0
        rounds.append(
            {
                "round": r,
                "accuracy": accuracy,
                "loss": float(2.4 * (1 - accuracy) ** 1.3 + 0.05),
                "proxy_loss": float(2 * (1 - accuracy)) if rule in ("smartfl", "fltrust") else None,
                "malicious_mass": None if none else float(weights[bad].sum()),
                "seconds": {"train": 0.5, "aggregate": 0.02, "evaluate": 0.03},
                "dropped": dropped,
                "info": {"screened_share": 0.0} | ({"f": 4.0} if rule == "krum" else {}),
                "events": ["aggregator.f was capped at 22 of 48 clients"] if rule == "krum" and r < 4 else [],
            }
        )
        coefficients.append(
            {
                "round": r,
                "ids": ids,
                "coefficients": None if none else weights.tolist(),
                "malicious": [i for i in ids if i in malicious],
            }
        )
    (folder / "experiment.toml").write_text(toml(tables))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    write_lines(folder / "rounds.jsonl", rounds)
    write_lines(folder / "coefficients.jsonl", coefficients)
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """``make_run("krum", seed=1, rounds=5)`` → the directory of a sample run."""

    def make(rule: str = "smartfl", *, accuracies: list[float] | None = None, folder: str = "", **changes: Any) -> Path:
        tables = experiment(rule, **changes)
        return write_run(tmp_path / (folder or f"{rule}-{tables['seed']}"), tables, accuracies)

    return make
