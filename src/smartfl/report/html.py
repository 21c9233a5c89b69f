"""One self-contained HTML file: opens from disk, offline, on a phone or in print."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from smartfl import __version__
from smartfl.errors import UserError
from smartfl.records.naming import flatten, shown
from smartfl.records.run import RunRecord
from smartfl.report.grouping import Group, group_runs, settings, varying
from smartfl.report.payload import payload
from smartfl.report.story import facts, headline, title
from smartfl.report.summary import COLUMNS, SummaryRow, SummaryTable
from smartfl.report.trust import Trust, warnings

SCRIPTS = ("chart.js", "heatmap.js", "page.js")
MOST_LINES = 200  # dropped clients or events listed per run; the rest is counted


def write_report(runs: Iterable[RunRecord], out: str | Path, heading: str = "") -> Path:
    """Write the report on ``runs`` to ``out`` (atomically) and return its path; see ``render_report``."""
    target = Path(out)
    text = render_report(runs, heading)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UserError(f"the report cannot be written to {target}: {error.strerror}; give a writable file") from error
    return target


def render_report(runs: Iterable[RunRecord], heading: str = "") -> str:
    """The page as text, under ``heading`` or what the runs' names share.

    Names are escaped; a script that is not ours is refused by the page's own policy.
    """
    groups = group_runs(runs)
    if not groups:
        raise UserError("a report needs at least one run directory")
    everyone = [run for group in groups for run in group.runs]
    table = SummaryTable(tuple(map(SummaryRow.of, groups)))
    trust = [line for g in groups for run in g.runs if (line := Trust.of(run_label(g, run), run)).said]
    script = "\n".join(_asset(name) for name in SCRIPTS)
    pages = Environment(loader=PackageLoader("smartfl.report", "."), autoescape=True, undefined=StrictUndefined)
    pages.trim_blocks = pages.lstrip_blocks = True
    return pages.get_template("report.html.jinja").render(
        title=heading or title([run.name for run in everyone]),
        story=headline(groups),
        facts=facts(everyone),
        columns=COLUMNS,
        table=table,
        groups=groups,
        several_seeds=any(len(group.runs) > 1 for group in groups),
        attacked=any(run.attacked for run in everyone),
        weighed=any(run.cohorts for run in everyone),
        trust=trust,
        warnings=warnings(trust),
        notes=[_notes(group, run) for group in groups for run in group.runs],
        configuration=_configuration(groups),
        environment=_environment(groups),
        version=__version__,
        style=Markup(_asset("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(embed(payload(groups))),
    )


def embed(value: Any) -> str:
    """JSON that is safe inside a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files("smartfl.report").joinpath(name).read_text(encoding="utf-8")


def run_label(group: Group, run: RunRecord) -> str:
    """How a single run is called on the page."""
    return f"{group.label} · seed {run.seed}"


def _notes(group: Group, run: RunRecord) -> dict[str, Any]:
    """Dropped clients and events of a run, each once with the rounds it happened in."""
    dropped: dict[tuple[int, str], list[int]] = {}
    events: dict[str, list[int]] = {}
    for record in run.rounds:
        for client in record.dropped:
            dropped.setdefault((client.id, client.reason), []).append(record.round)
        for event in record.events:
            events.setdefault(event, []).append(record.round)
    lost = [(i, i in run.attackers, reason, ranges(rounds)) for (i, reason), rounds in sorted(dropped.items())]
    said = [(text, ranges(rounds)) for text, rounds in events.items()]
    return {
        "label": run_label(group, run),
        "dropped": lost[:MOST_LINES],
        "more_dropped": max(0, len(lost) - MOST_LINES),
        "events": said[:MOST_LINES],
        "more_events": max(0, len(said) - MOST_LINES),
    }


def ranges(rounds: Sequence[int]) -> str:
    """1, 2, 3, 7 → ``1–3, 7``."""
    spans: list[list[int]] = []
    for r in sorted(set(rounds)):
        if spans and r == spans[-1][1] + 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)


def _configuration(groups: Sequence[Group]) -> dict[str, Any]:
    """Settings that all methods share, by table, and those in which they differ."""
    tables = [settings(group.runs[0]) for group in groups]
    different = varying(tables)
    shared: dict[str, list[tuple[str, str]]] = {}
    for key, value in tables[0].items():
        if key not in different:
            table, _, name = key.partition(".")
            shared.setdefault(table if name else "experiment", []).append((name or table, value))
    own = [(g.label, [(k, t[k]) for k in different if k in t]) for g, t in zip(groups, tables, strict=True)]
    places = [(run_label(g, run), str(run.path)) for g in groups for run in g.runs]
    return {"shared": shared, "own": own, "places": places}


def _environment(groups: Sequence[Group]) -> dict[str, Any]:
    """What all runs share, and each distinct rest once with the runs that had it."""
    tables = {
        run_label(group, run): {k: shown(v) for k, v in flatten(run.environment)}
        for group in groups
        for run in group.runs
    }
    different = varying(list(tables.values()))
    own: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for label, table in tables.items():
        own.setdefault(tuple((k, table[k]) for k in different if k in table), []).append(label)
    first = next(iter(tables.values()))
    return {
        "shared": [(k, v) for k, v in first.items() if k not in different],
        "own": [(", ".join(labels), pairs) for pairs, labels in own.items()] if different else [],
    }
