"""Runs that differ only in their seed are one method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from smartfl.records.naming import attack_label, flatten, shown
from smartfl.records.run import RunRecord

IDENTITY = frozenset({"seed", "name", "checkpoint_every"})  # what may differ between the runs of one method
FROM_THE_START = ("attack.since", 1)  # as in records of before there was that setting
TRAINING = frozenset(
    {"optimizer", "lr", "momentum", "weight_decay", "batch_size", "epochs", "participation", "warn_after", "timeout"}
)
FOREMOST = ("data.dataset", "attack")  # no other setting stands for these in a label


@dataclass(frozen=True)
class Group:
    """The runs of one method, a seed each, under a label that no other group of the report has."""

    label: str
    runs: tuple[RunRecord, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @cached_property
    def scene(self) -> frozenset[tuple[str, str]]:
        """What the method met, for comparison: only groups with equal scenes can be ranked."""
        return frozenset(scene(self.runs[0]).items())


def settings(run: RunRecord) -> dict[str, str]:
    """Every setting of a run but its seed and name, by dotted key."""
    return {
        k: shown(value) for k, value in flatten(run.experiment) if k not in IDENTITY and (k, value) != FROM_THE_START
    }


def scene(run: RunRecord) -> dict[str, str]:
    """What the method meets: every setting that is not its own, the attack and its rate as one."""
    label = attack_label(run.experiment.get("attack", {})) or "none"
    merged = ("attack.name", "attack.rate")
    return {"attack": label} | {k: v for k, v in settings(run).items() if k not in merged and not _own(k)}


def group_runs(runs: Iterable[RunRecord]) -> tuple[Group, ...]:
    """Groups in order of first appearance, seeds ascending.

    A seed that appears twice under the same settings opens a second group: averaging a run with its copy would
    understate the spread. Labels are those a study gave, else the method and the settings that tell groups apart.
    """
    found: dict[tuple[object, int], list[RunRecord]] = {}
    copies: Counter[tuple[object, int]] = Counter()
    for run in {(r.path.resolve(), r.called): r for r in runs}.values():
        key = run.called, tuple(sorted(settings(run).items()))
        found.setdefault((key, copies[key, run.seed]), []).append(run)
        copies[key, run.seed] += 1
    members = [tuple(sorted(group, key=lambda r: r.seed)) for group in found.values()]
    return tuple(Group(label, group) for label, group in zip(_labels(members), members, strict=True))


def varying(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose value is not the same in every table, in order of appearance."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({table.get(key) for table in tables}) > 1]


def telling(tables: Sequence[Mapping[str, str]], first: Sequence[str] = ()) -> list[str]:
    """Keys that tell the tables apart: those of ``first`` that vary, then each that splits what is alike so far.

    A key whose value follows from the keys before it is left out; of the rest, tables of settings come before the
    experiment's own numbers such as rounds.
    """
    different = varying(tables)
    named = [key for key in first if key in different]

    def kinds(keys: Sequence[str]) -> int:
        return len({tuple(table.get(key) for key in keys) for table in tables})

    for key in sorted(different, key=lambda k: "." not in k):
        if kinds([*named, key]) > kinds(named):
            named.append(key)
    return named


def _labels(groups: Sequence[tuple[RunRecord, ...]]) -> list[str]:
    firsts = [group[0] for group in groups]
    between = telling([scene(run) for run in firsts], FOREMOST)
    tables = [{k: v for k, v in (settings(r) | scene(r)).items() if k in between or _own(k)} for r in firsts]
    labels = []
    for run, table in zip(firsts, tables, strict=True):
        same_method = [other for other, r in zip(tables, firsts, strict=True) if r.method == run.method]
        own = [key for key in telling(same_method, between) if key not in between]
        parts = [_part(key, table[key]) for key in [*between, *own] if key in table]
        labels.append(run.called or " · ".join([run.method, *parts]))
    repeated = Counter(labels)
    return [
        label if repeated[label] == 1 else f"{label} · {run.path.name}"
        for label, run in zip(labels, firsts, strict=True)
    ]


def _own(key: str) -> bool:
    """Whether a setting belongs to the method: the server's rule, and the clients' algorithm with its settings."""
    table, _, name = key.partition(".")
    return table == "aggregator" or (table == "client" and name not in TRAINING)


def _part(key: str, value: str) -> str:
    """A setting in a label, ``alpha 0.1``; datasets and attacks go without their key."""
    if key in FOREMOST:
        return "no attack" if (key, value) == ("attack", "none") else value
    table, _, last = key.rpartition(".")
    return f"{table.rpartition('.')[2] if last == 'name' and table else last} {value}"
