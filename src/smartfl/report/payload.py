"""The numbers that the page draws, packed small."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from smartfl.records.round import RoundRecord
from smartfl.records.run import RunRecord
from smartfl.report.grouping import Group

UNIT = 1e-5  # weights are whole multiples of this: a thousandth of a percent
MOST_CELLS = 600_000  # client × round cells of all heat maps together; beyond that, rounds are skipped

METRICS = {
    "accuracy": "Test accuracy",
    "loss": "Test loss",
    "proxy_loss": "Loss on proxy data",
    "seconds": "Seconds per round",
}


def payload(groups: Sequence[Group]) -> dict[str, Any]:
    """Everything the page's script needs, ready for JSON (no number in it is NaN or infinite)."""
    runs = [(k, run) for k, group in enumerate(groups) for run in group.runs]
    cells = sum(len(run.cohorts) * len(run.clients) for _, run in runs)
    step = max(1, math.ceil(cells / MOST_CELLS))
    packed = [_run(run, k, step) for k, run in runs]
    keys = [key for key in METRICS if any(key in run["metrics"] for run in packed)]
    keys += sorted({key for run in packed for key in run["metrics"]} - METRICS.keys() - {"mass", "uniform"})
    return {
        "groups": [{"label": group.label, "seeds": list(group.seeds)} for group in groups],
        "runs": packed,
        "metrics": [[key, METRICS.get(key, key.removeprefix("info.") + " (logged)")] for key in keys],
        "unit": UNIT,
        "step": step,
    }


def _run(run: RunRecord, group: int, step: int) -> dict[str, Any]:
    uniform = {w.round: w.uniform_mass for w in run.cohorts} if run.attackers else {}
    columns: dict[str, list[float | None]] = {
        "accuracy": [r.accuracy for r in run.rounds],
        "loss": [r.loss for r in run.rounds],
        "proxy_loss": [r.proxy_loss for r in run.rounds],
        "seconds": [None if r.seconds is None else r.seconds.total for r in run.rounds],
        "mass": [r.malicious_mass if run.attacked else None for r in run.rounds],
        "uniform": [uniform.get(r.round) for r in run.rounds],
    }
    for key in dict.fromkeys(key for r in run.rounds for key in r.info):
        columns[f"info.{key}"] = [r.info.get(key) for r in run.rounds]
    metrics = {
        key: [_short(v) for v in values] for key, values in columns.items() if any(v is not None for v in values)
    }
    return {
        "group": group,
        "seed": run.seed,
        "attacked": run.attacked,
        "rounds": [r.round for r in run.rounds],
        "metrics": metrics,
        "heat": _heat(run, step),
    }


def _heat(run: RunRecord, step: int) -> dict[str, Any] | None:
    """Rows are clients, columns rounds; a column is one string, a cell per client, commas between.

    "" not in the cohort, "d" dropped by screening, "n" in the cohort of a rule without weights, else the weight in
    ``UNIT``; a leading "m" marks an attacker where attackers change from round to round.
    """
    shown = run.cohorts[::step]
    if not shown:
        return None
    fixed = all(run.attackers.intersection(w.ids) <= set(w.malicious) for w in run.cohorts)
    dropped = {r.round: {d.id for d in r.dropped} for r in run.rounds}
    return {
        # Flower's node ids exceed what a JavaScript number holds, hence text.
        "clients": [str(i) for i in run.clients],
        "attackers": [k for k, i in enumerate(run.clients) if i in run.attackers] if fixed else None,
        "rounds": [w.round for w in shown],
        "cells": [_column(w, run.clients, dropped.get(w.round, set()), fixed) for w in shown],
    }


def _column(weights: RoundRecord, clients: Sequence[int], dropped: set[int], fixed: bool) -> str:
    found = dict.fromkeys(weights.ids, "n")
    if weights.coefficients is not None:
        for i, p in zip(weights.ids, weights.coefficients, strict=True):
            found[i] = "n" if p is None else str(round(p / UNIT))
    found |= dict.fromkeys(dropped, "d")
    if not fixed:
        found |= {i: "m" + found[i] for i in set(weights.malicious).intersection(found)}
    return ",".join(found.get(i, "") for i in clients)


def _short(value: float | None) -> float | int | None:
    """Five significant digits: more than a screen shows."""
    if value is None:
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
