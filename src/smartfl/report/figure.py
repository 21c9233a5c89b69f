"""The picture: accuracy of each method by round, next to the weight that attackers got."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from smartfl.drawing import check_format, drawing, save
from smartfl.errors import UserError
from smartfl.records.curve import Values, curve
from smartfl.records.result import LAST
from smartfl.records.run import RunRecord
from smartfl.report.grouping import Group, group_runs

COLOURS = ("#0063a8", "#c8500a", "#00795a", "#b0457f", "#6a4fb3", "#a07000", "#2f93cf", "#5b6470", "#7c4a1e", "#0a7f8c")
MARKERS = "os^DvP"


def draw_curves(runs: Iterable[RunRecord], path: str | Path) -> Path:
    """Draw ``runs`` to a PNG, SVG or PDF file: mean over seeds with a band of ± one sample standard deviation.

    The right panel, weight given to attackers, is left out where nobody attacks. Needs the extra ``report``.
    """
    target = Path(path)
    check_format(target)
    groups = group_runs(runs)
    if not groups:
        raise UserError("a figure needs at least one run directory")
    attacked = any(run.attacked for group in groups for run in group.runs)
    with drawing(font_size=10):
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(10 if attacked else 6, 4.2), layout="constrained")
        axes = figure.subplots(1, 2 if attacked else 1, squeeze=False)[0]
        _panel(axes[0], groups, lambda run: [(r.round, r.accuracy) for r in run.rounds], "Test accuracy (%)")
        if attacked:
            # Krum's weight is 0 or 1: only a running mean shows how often an attacker wins.
            _panel(axes[1], groups, _running_mass, f"Weight given to attackers (%), mean of {LAST} rounds")
            _uniform(axes[1], groups)
        for panel in axes:
            panel.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
        handles, labels = _legend(axes)
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
        return save(figure, target, dpi=160)


def _running(values: Iterable[tuple[int, float | None]]) -> list[tuple[int, float | None]]:
    """Each value replaced by the mean of the last ten up to it."""
    found = [(r, value) for r, value in values if value is not None]
    return [(r, statistics.fmean(v for _, v in found[max(0, k - LAST + 1) : k + 1])) for k, (r, _) in enumerate(found)]


def _running_mass(run: RunRecord) -> list[tuple[int, float | None]]:
    return _running((r.round, r.malicious_mass) for r in run.rounds)


def _running_uniform(run: RunRecord) -> list[tuple[int, float | None]]:
    return _running((w.round, w.uniform_mass) for w in run.cohorts if run.attackers)


def _panel(axes: Any, groups: Sequence[Group], values: Values, title: str) -> None:
    for k, group in enumerate(groups):
        points = curve(group.runs, values)
        if not points:
            continue
        rounds = [r for r, _ in points]
        mean = [100 * s.mean for _, s in points]
        std = [100 * (s.std or 0) for _, s in points]
        colour, every = COLOURS[k % len(COLOURS)], max(1, len(points) // 7)
        axes.plot(
            rounds, mean, color=colour, label=group.label, lw=1.8,
            marker=MARKERS[k % len(MARKERS)], markersize=5, markevery=(k * 3 % every, every),
        )  # fmt: skip
        if len(group.runs) > 1:
            low, high = (
                [min(100.0, max(0.0, m + sign * s)) for m, s in zip(mean, std, strict=True)] for sign in (-1, 1)
            )
            axes.fill_between(rounds, low, high, color=colour, alpha=0.16, lw=0)
    axes.set(xlabel="Round", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(color="#e9edf1")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _uniform(axes: Any, groups: Sequence[Group]) -> None:
    """The dashed line: attackers' share of the cohort."""
    points = curve((run for group in groups for run in group.runs), _running_uniform)
    if points:
        rounds, shares = [r for r, _ in points], [100 * s.mean for _, s in points]
        axes.plot(rounds, shares, color="#18212b", ls=(0, (4, 3)), lw=1.3, label="equal weights", zorder=3)


def _legend(axes: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Each label once, over both panels."""
    found: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
