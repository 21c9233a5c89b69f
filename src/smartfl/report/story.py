"""What happened, in two sentences, and the scene it happened in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from smartfl.records.naming import attack_label, flatten, shown
from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread
from smartfl.report.grouping import Group


def title(names: Sequence[str]) -> str:
    """The experiment's name; of several (``demo-krum``, ``demo-smartfl``) what they begin with, else each once."""
    distinct = list(dict.fromkeys(names))
    words = zip(*(name.split("-") for name in distinct), strict=False)
    begin = "-".join(first for first, *others in takewhile(lambda same: len(set(same)) == 1, words))
    return begin or " · ".join(distinct)


def headline(groups: Sequence[Group]) -> str:
    """Who came first by the mean of the last ten rounds, by how much, and what attackers were given.

    Methods that met different data, attacks or models are counted, not ranked; those in progress are ranked only where
    none has finished.
    """
    recorded = [(s.mean, g) for g in groups if (s := Spread.of(run.last_ten for run in g.runs)) is not None]
    if not recorded:
        return "No round has been recorded yet."
    if len({group.scene for group in groups}) > 1:
        return (
            f"{len(groups)} methods and settings side by side, not ranked: names tell them apart, and Configuration"
            " below has all that differs."
        )
    ranked = [(mean, g) for mean, g in recorded if g.finished] or recorded
    ranked.sort(key=lambda pair: -pair[0])
    mean, first = ranked[0]
    said = f"{first.label} {'ends' if first.finished else 'stands'} at {mean:.1%} accuracy"
    if len(ranked) > 1:
        said += f", {_ahead(100 * (mean - ranked[1][0]))} {ranked[1][1].label}"
    said += " (mean of the last ten rounds)."
    given = Spread.of(run.malicious_mass for run in first.runs)
    equal = Spread.of(run.uniform_mass for run in first.runs)
    if given is not None and equal is not None:
        said += f" Attackers get {given.mean:.1%} of its weight; if every client counted the same, {equal.mean:.1%}."
    return said


def _ahead(points: float) -> str:
    """A lead in percentage points; one that would print as 0.0 is none."""
    return "level with" if points < 0.05 else f"{points:.1f} points above"


def facts(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """The scene as a few titled values; a fact that differs between runs lists all its values."""
    tables = [dict(flatten(run.experiment)) for run in runs]
    found = [
        ("Data", _each(_data(tables))),
        ("Model", _each(_model(t) for t in tables)),
        ("Clients", _each(_clients(t) for t in tables)),
        ("Attack", _each(attack_label(run.experiment.get("attack", {})) or "none" for run in runs)),
        ("Rounds", _each(str(run.planned_rounds or len(run.rounds)) for run in runs)),
        ("Seeds", ", ".join(map(str, sorted({run.seed for run in runs})))),
    ]
    return [(title, text) for title, text in found if text]


def _each(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _data(tables: Iterable[dict[str, object]]) -> list[str]:
    """``digits · feddf α 0.01, 1``: each dataset and partition once, with its concentrations."""
    found: dict[str, dict[str, None]] = {}
    for t in tables:
        alphas = found.setdefault(f"{t.get('data.dataset', '')} · {t.get('data.partition', '')}".strip(" ·"), {})
        if "data.alpha" in t:
            alphas[shown(t["data.alpha"])] = None
    return [f"{name} α\u00a0{', '.join(alphas)}" if alphas else name for name, alphas in found.items()]


def _model(t: dict[str, object]) -> str:
    names = [str(v) for k, v in t.items() if k.startswith("model.") and k.endswith("name")]
    return " + ".join(dict.fromkeys(names))


def _clients(t: dict[str, object]) -> str:
    part = t.get("client.participation")
    share = f", {part:.0%} a round" if isinstance(part, int | float) else ""
    return f"{shown(t['data.clients'])}{share}" if "data.clients" in t else ""
