"""The paper's figures, redrawn from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from smartfl.errors import UserError
from smartfl.experiment.study import Point
from smartfl.report.figure import COLOURS, FORMATS, MARKERS, Values, curve
from smartfl.report.run_data import RunData
from smartfl.report.spread import Spread
from smartfl.reproduce.metrics import score
from smartfl.reproduce.plan import Plan

Panel = tuple[str, Callable[[Any], None]]
PANELS_A_ROW = 4


def draw_study(plan: Plan, path: Path) -> Path:
    """Draw the runs that exist to a PNG, SVG or PDF file: means over seeds, bands of ± one sample std."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"figure file '{path.name}' must end in {', '.join(FORMATS)}")
    if not any(planned.done for planned in plan.runs):
        raise UserError(f"nothing of {plan.study.name} has been run: smartfl reproduce {plan.study.name}")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('figures need matplotlib: pip install "smartfl[report]"') from error
    kinds = {"curves": _curves, "weights": _weights, "mass": _mass, "sweep": _sweep, "overfit": _overfit}
    panels = kinds[plan.study.figure.kind](plan)
    across = min(PANELS_A_ROW, len(panels))
    down = -(-len(panels) // across)
    with rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "smartfl"}):
        figure = Figure(figsize=(3.6 * across + 0.4, 2.9 * down + 0.9), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        axes = [ax for row in grid for ax in row]
        for ax, (title, draw) in zip(axes, panels, strict=False):
            draw(ax)
            ax.set_title(title, fontsize=9)
            ax.grid(color="#e9edf1")
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        figure.suptitle(fill(plan.study.title, 50 * across), fontsize=10)  # one panel is narrower than most titles
        _legend(figure, axes)
        stamp = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150, facecolor="white", metadata=stamp)
        except OSError as error:
            raise UserError(f"figure '{path}' cannot be written: {error.strerror or error}") from error
    return path


def mean_malicious_weight(run: RunData) -> list[tuple[int, float | None]]:
    """By round, the mean coefficient of the compromised clients of the cohort; rules without coefficients have none."""
    found: list[tuple[int, float | None]] = []
    for w in run.weights:
        if w.coefficients is not None and w.malicious:
            theirs = [c or 0.0 for i, c in zip(w.ids, w.coefficients, strict=True) if i in w.malicious]
            if theirs:
                found.append((w.round, sum(theirs) / len(theirs)))
    return found


def _accuracy(run: RunData) -> list[tuple[int, float | None]]:
    return [(r.round, None if r.accuracy is None else 100 * r.accuracy) for r in run.rounds]


def _share_of_attackers(run: RunData) -> list[tuple[int, float | None]]:
    return [(r.round, 100 * r.malicious_mass) for r in run.rounds if r.malicious_mass is not None and run.attacked]


def _proxy_accuracy(run: RunData) -> list[tuple[int, float | None]]:
    return [(r.round, 100 * a) for r in run.rounds if (a := r.info.get("proxy_accuracy")) is not None]


def _runs(plan: Plan, method: str, column: tuple[Point, ...]) -> list[RunData]:
    return [p.found.run for p in plan.cell(method, column) if p.found is not None and p.done]


def _title(column: Iterable[Point]) -> str:
    return " · ".join(point.label for point in column)


def _curves(plan: Plan) -> list[Panel]:
    return [(_title(column), _lines(plan, column, _accuracy, "Test accuracy (%)")) for column in plan.columns]


def _overfit(plan: Plan) -> list[Panel]:
    panels: list[Panel] = []
    for column in plan.columns:
        for name, values in (("proxy data", _proxy_accuracy), ("test data", _accuracy)):
            panels.append(
                (" · ".join([*(p.label for p in column), name]), _lines(plan, column, values, "Accuracy (%)"))
            )
    return panels


def _mass(plan: Plan) -> list[Panel]:
    """The weight of all attackers together; columns without attack and rules without weights have none."""
    columns = [c for c in plan.columns if any(r.attacked for m in plan.methods for r in _runs(plan, m, c))]
    if not columns:
        raise UserError(f"no run of {plan.study.name} has attackers whose weight could be drawn")
    return [
        (_title(column), _lines(plan, column, _share_of_attackers, "Weight on attackers (%)")) for column in columns
    ]


def _weights(plan: Plan) -> list[Panel]:
    if not any(p.found is not None and p.found.run.weights for p in plan.runs):
        raise UserError(f"{plan.study.name} is drawn from coefficients.jsonl, which none of its records has")
    panels: list[Panel] = []
    for column in plan.columns:
        cohort = next(p.experiment.cohort_size for p in plan.runs if p.trial.points == column)
        inner = _lines(plan, column, mean_malicious_weight, "Mean weight of a poisoned client")

        def draw(ax: Any, inner: Callable[[Any], None] = inner, cohort: int = cohort) -> None:
            inner(ax)
            ax.axhline(1 / cohort, color="#18212b", ls=(0, (4, 3)), lw=1.2, label="equal weights")

        panels.append((_title(column), draw))
    return panels


def _lines(plan: Plan, column: tuple[Point, ...], values: Values, ylabel: str) -> Callable[[Any], None]:
    """Curves by round, a method each."""

    def draw(ax: Any) -> None:
        for method in plan.methods:
            points = curve(_runs(plan, method, column), values)
            if points:
                _line(ax, plan, method, [float(r) for r, _ in points], [s for _, s in points])
        ax.set(xlabel="Round", ylabel=ylabel)
        ax.set_ylim(bottom=0)

    return draw


def _sweep(plan: Plan) -> list[Panel]:
    """Accuracy against the values of one axis; a method that was run at one value only is a level."""
    study = plan.study
    if study.figure.x is None:
        raise UserError(f"{study.name}: figure.x must name the axis of a sweep")
    place = list(study.axes).index(study.figure.x)
    groups: dict[tuple[str, ...], list[tuple[Point, ...]]] = {}
    for column in plan.columns:
        groups.setdefault(tuple(p.label for k, p in enumerate(column) if k != place), []).append(column)

    def panel(columns: Sequence[tuple[Point, ...]]) -> Callable[[Any], None]:
        def draw(ax: Any) -> None:
            for method in plan.methods:
                found = [
                    (float(column[place].value), scored.spread)
                    for column in columns
                    if (scored := score(_runs(plan, method, column), study.metric, None))
                ]
                planned = sum(bool(plan.cell(method, column)) for column in columns)
                if found and planned == 1 < len(columns):
                    ends = [float(column[place].value) for column in columns]
                    found = [(x, found[0][1]) for x in (min(ends), max(ends))]
                if found:
                    _line(ax, plan, method, [x for x, _ in found], [s for _, s in found])
            ax.set(xlabel=study.figure.xlabel or study.figure.x, ylabel="Test accuracy (%)")
            if study.figure.log:
                ax.set_xscale("log", base=2)
                ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")

        return draw

    return [(" · ".join(shared), panel(columns)) for shared, columns in groups.items()]


def _line(ax: Any, plan: Plan, method: str, xs: Sequence[float], spreads: Sequence[Spread]) -> None:
    """A method's line; colours count from the last method, which is ours, so that it looks the same in every figure."""
    methods = list(plan.study.methods)
    k = len(methods) - 1 - methods.index(method)
    colour, every = COLOURS[k % len(COLOURS)], max(1, len(xs) // 6)
    style = "-" if k < len(COLOURS) else "--"
    label, mean = plan.study.methods[method].label, [s.mean for s in spreads]
    ax.plot(
        xs, mean, color=colour, ls=style, label=label, lw=1.5 if k else 2.2, zorder=3 - k / 100,
        marker=MARKERS[k % len(MARKERS)], markersize=4, markevery=(k * 2 % every, every),
    )  # fmt: skip
    if any(s.std is not None for s in spreads):
        low, high = ([min(100.0, max(0.0, s.mean + sign * (s.std or 0))) for s in spreads] for sign in (-1, 1))
        ax.fill_between(xs, low, high, color=colour, alpha=0.14, lw=0)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """Each label once, below all panels."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    columns = min(len(found), max(2, int(figure.get_figwidth() / 1.7)))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, frameon=False)
