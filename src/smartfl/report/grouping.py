"""Runs that differ only in their seed are one method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smartfl.report.naming import attack_label, flatten, shown
from smartfl.report.run_data import RunData

IDENTITY = frozenset({"seed", "name", "checkpoint_every"})  # what may differ between the runs of one method


@dataclass(frozen=True)
class Group:
    """The runs of one method, a seed each, under a label that no other group of the report has."""

    label: str
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)


def settings(run: RunData) -> dict[str, str]:
    """Every setting of a run but its seed and name, by dotted key."""
    return {key: shown(value) for key, value in flatten(run.experiment) if key not in IDENTITY}


def group_runs(runs: Iterable[RunData]) -> tuple[Group, ...]:
    """Groups in order of first appearance, seeds ascending.

    A seed that appears twice under the same settings opens a second group: averaging a run with its copy would
    understate the spread. Labels name the method and every setting that tells two groups apart.
    """
    found: dict[tuple[object, int], list[RunData]] = {}
    copies: Counter[tuple[object, int]] = Counter()
    for run in {r.path.resolve(): r for r in runs}.values():
        key = tuple(sorted(settings(run).items()))
        found.setdefault((key, copies[key, run.seed]), []).append(run)
        copies[key, run.seed] += 1
    members = [tuple(sorted(group, key=lambda r: r.seed)) for group in found.values()]
    return tuple(Group(label, group) for label, group in zip(_labels(members), members, strict=True))


def varying(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose value is not the same in every table, in order of appearance."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({table.get(key) for table in tables}) > 1]


def _labels(groups: Sequence[tuple[RunData, ...]]) -> list[str]:
    firsts = [group[0] for group in groups]
    scenes = [_scene(run.experiment) for run in firsts]
    rules = [{k: v for k, v in settings(run).items() if k.startswith("aggregator.")} for run in firsts]
    between = varying(scenes)
    labels = []
    for run, scene, rule in zip(firsts, scenes, rules, strict=True):
        same_method = [r for r, other in zip(rules, firsts, strict=True) if other.method == run.method]
        parts = [f"{_short(key)} {scene[key]}" for key in between if key in scene]
        parts += [f"{_short(key)} {rule[key]}" for key in varying(same_method) if key in rule]
        labels.append(" · ".join([run.method, *parts]))
    repeated = Counter(labels)
    return [
        label if repeated[label] == 1 else f"{label} · {run.path.name}"
        for label, run in zip(labels, firsts, strict=True)
    ]


def _scene(experiment: Mapping[str, Any]) -> dict[str, str]:
    """What the method meets: all settings outside its own table, the attack and its rate as one."""
    outside = {k: v for k, v in experiment.items() if k not in IDENTITY | {"aggregator", "attack"}}
    attack = dict(experiment.get("attack", {}))
    label = attack_label(attack) or "none"
    details = {k: v for k, v in attack.items() if k not in ("name", "rate")}
    return {"attack": label} | {k: shown(v) for k, v in flatten(outside | {"attack": details})}


def _short(key: str) -> str:
    table, _, last = key.rpartition(".")
    return table.rpartition(".")[2] if last == "name" and table else last
