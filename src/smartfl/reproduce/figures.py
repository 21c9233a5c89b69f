"""The paper's figures, redrawn from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import ceil, prod
from pathlib import Path
from textwrap import fill
from typing import Any

from smartfl.drawing import check_format, drawing, save
from smartfl.errors import UserError
from smartfl.reproduce.palette import OURS, Look, looks
from smartfl.reproduce.panels import Line, Panel, panels_of
from smartfl.reproduce.plan import Plan, Planned

PANELS_A_ROW = 5
INK, FAINT = "#18212b", "#6b747e"


def draw_study(plan: Plan, path: Path) -> Path:
    """Draw the runs that exist to a PNG, SVG or PDF file: means over seeds, bands of ± one sample std."""
    check_format(path)
    if not any(planned.done for planned in plan.runs):
        raise UserError(f"nothing of {plan.study.name} has been run yet: `smartfl reproduce` runs it")
    with drawing(font_size=9):
        return save(figure_of(plan), path, dpi=150)


def figure_of(plan: Plan) -> Any:
    """The picture, a matplotlib figure; rows in which nothing was run are low."""
    from matplotlib.figure import Figure

    blocks = blocks_of(panels_of(plan))
    longest = max(map(len, blocks))
    across = ceil(longest / ceil(longest / PANELS_A_ROW))
    rows = [block[k : k + across] for block in blocks for k in range(0, len(block), across)]
    heights = [2.9 if any(panel.lines for panel in row) else 1.0 for row in rows]
    width = 3.6 * across + 0.4
    names = [plan.study.methods[method].label for method in plan.methods]
    below = 0.2 * ceil(len(names) / _entries_a_row(width, names))
    figure = Figure(figsize=(width, sum(heights) + below + 0.8), layout="constrained")
    grid = figure.subplots(len(rows), across, squeeze=False, height_ratios=heights)
    drawn = []
    for axes, row in zip(grid, rows, strict=True):
        for ax in axes[len(row) :]:
            ax.set_visible(False)
        drawn += list(zip(axes, row, strict=False))
    style = looks(plan.study.methods)
    for ax, panel in drawn:
        _panel(ax, panel, plan, style)
    for block in blocks:
        _share([ax for ax, panel in drawn if panel in block and panel.lines and panel.shared])
    figure.suptitle(fill(plan.study.title, 50 * across), fontsize=10)  # one panel is narrower than most titles
    _legend(figure, [ax for ax, _ in drawn], plan, [line for _, panel in drawn for line in panel.lines])
    return figure


def blocks_of(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels that belong side by side: those of one value of the leading axis, or of several, if that is too many.

    Trailing axes are taken together as long as they fit into a row; an axis with one value does not count.
    """
    sizes = [len(set(labels)) for labels in zip(*(panel.labels for panel in panels), strict=True)]
    varying = [axis for axis, size in enumerate(sizes) if size > 1]
    outer, inner = varying[:-1], varying[-1:]
    while len(outer) > 1 and prod(sizes[axis] for axis in (outer[-1], *inner)) <= PANELS_A_ROW:
        inner.insert(0, outer.pop())
    return [list(block) for _, block in groupby(panels, lambda panel: [panel.labels[axis] for axis in outer])]


def footnote(lines: Sequence[Line], names: Mapping[str, str]) -> str:
    """How many seeds a mean is of, and which of the runs shown have fewer rounds than planned."""
    counts = {n for line in lines for n in Counter(run.trial.column for run in line.runs).values()}
    low, high = min(counts), max(counts)
    seeds = "one seed" if high == 1 else f"mean of {high} seeds" if low == high else f"mean of {low} to {high} seeds"
    said = [seeds if high == 1 else f"{seeds}, band ± one standard deviation"]
    if cut := {run.path: run for line in lines for run in line.runs if not run.finished}:
        ends = [f"{name} at {_ends(own)}" for key, name in names.items() if (own := _of(key, cut.values()))]
        said.append(f"some runs end early: {', '.join(ends)}")
    return "; ".join(said)


def _of(method: str, runs: Iterable[Planned]) -> list[Planned]:
    return [run for run in runs if run.trial.method == method]


def _ends(runs: Sequence[Planned]) -> str:
    """``90 to 105 of 200``"""
    found = []
    for wanted in sorted({run.experiment.rounds for run in runs}):
        done = [run.done for run in runs if run.experiment.rounds == wanted]
        span = f"{min(done)}" if min(done) == max(done) else f"{min(done)} to {max(done)}"
        found.append(f"{span} of {wanted}")
    return " and ".join(found)


def _panel(ax: Any, panel: Panel, plan: Plan, style: Mapping[str, Look]) -> None:
    ax.set_title(" · ".join(panel.labels), fontsize=9)
    if not panel.lines:
        ax.text(0.5, 0.5, "not recorded" if panel.begun else "not run", color=FAINT, ha="center", va="center",
                transform=ax.transAxes)  # fmt: skip
        ax.set(xticks=[], yticks=[], facecolor="#f5f7f9")
        ax.spines[:].set_visible(False)
        return
    for line in panel.lines:
        _line(ax, line, plan, style[line.method])
    if panel.level is not None:
        ax.axhline(panel.level, color=INK, ls=(0, (4, 3)), lw=1.2, label="equal weights")
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.ticks:
        if panel.log:
            ax.set_xscale("log", base=2)
        ax.set_xticks(panel.ticks, [f"{x:g}" for x in panel.ticks])
        ax.minorticks_off()
    else:
        ax.set_ylim(bottom=0)
    ax.grid(color="#e9edf1")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _line(ax: Any, line: Line, plan: Plan, look: Look) -> None:
    """Later methods above earlier ones and ours above all; markers are staggered, since many lines coincide."""
    k, count, every = plan.methods.index(line.method), len(plan.methods), max(1, len(line.xs) // 6)
    ours = line.method == OURS
    ax.plot(
        line.xs, [s.mean for s in line.spreads], color=look.hex, ls=look.dash, marker=look.marker,
        label=plan.study.methods[line.method].label, lw=2.4 if ours else 1.4, markersize=look.size,
        markeredgecolor="white", markeredgewidth=0.4, markevery=(k * every // count, every),
        zorder=4 if ours else 3 + k / count,
    )  # fmt: skip
    if any(s.std is not None for s in line.spreads):
        low, high = ([min(100.0, max(0.0, s.mean + sign * (s.std or 0))) for s in line.spreads] for sign in (-1, 1))
        ax.fill_between(line.xs, low, high, color=look.hex, alpha=0.14, lw=0)


def _share(axes: Sequence[Any]) -> None:
    """One scale for all."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _entries_a_row(width: float, labels: Sequence[str]) -> int:
    """How many entries of a legend fit into so many inches: a handle, and letters of a thirteenth of an inch."""
    return max(1, int(width / (0.7 + max(map(len, labels)) / 13)))


def _legend(figure: Any, axes: Iterable[Any], plan: Plan, lines: Sequence[Line]) -> None:
    """Each label once, in the study's order, below all panels, under a line on what the means are of."""
    if not lines:
        return
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    names = {key: plan.study.methods[key].label for key in plan.methods}
    order = [*names.values(), *found]
    labels = sorted(found, key=order.index)
    width = figure.get_figwidth()
    down = ceil(len(labels) / _entries_a_row(width, labels))
    legend = figure.legend(
        [found[label] for label in labels], labels, loc="outside lower center", frameon=False, handlelength=3.2,
        ncols=ceil(len(labels) / down), title=fill(footnote(lines, names), int(14 * width)),
        title_fontsize=7.5,
    )  # fmt: skip
    legend.get_title().set(color=FAINT, ha="center")
