"""What a study's figure shows, panel by panel, as numbers: nothing here draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smartfl.errors import UserError
from smartfl.experiment.study import Point
from smartfl.records.curve import Values, curve
from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread
from smartfl.reproduce.metrics import score
from smartfl.reproduce.plan import Plan, Planned


@dataclass(frozen=True)
class Line:
    """A method's means and deviations over seeds, and the runs that they come from."""

    method: str
    runs: tuple[Planned, ...]
    xs: tuple[float, ...]
    spreads: tuple[Spread, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    labels   where it lies, axis by axis
    begun    whether anything of it has been run, shown or not
    level    a horizontal line, the weight of a client where all count the same
    ticks    the values of a sweep
    shared   whether panels side by side have one scale
    """

    labels: tuple[str, ...]
    lines: tuple[Line, ...]
    xlabel: str
    ylabel: str
    begun: bool
    level: float | None = None
    ticks: tuple[float, ...] = ()
    log: bool = False
    shared: bool = False


def panels_of(plan: Plan) -> list[Panel]:
    """The panels of a study's kind of figure, in the order of its axes."""
    kinds = {"curves": _curves, "weights": _weights, "mass": _mass, "sweep": _sweep, "overfit": _overfit}
    return kinds[plan.study.figure.kind](plan)


def mean_malicious_weight(run: RunRecord) -> list[tuple[int, float | None]]:
    """By round, the mean coefficient of the compromised clients of the cohort; rules without coefficients have none."""
    found: list[tuple[int, float | None]] = []
    for w in run.cohorts:
        if w.coefficients is not None and w.malicious:
            theirs = [c or 0.0 for i, c in zip(w.ids, w.coefficients, strict=True) if i in w.malicious]
            if theirs:
                found.append((w.round, sum(theirs) / len(theirs)))
    return found


def _accuracy(run: RunRecord) -> list[tuple[int, float | None]]:
    return [(r.round, None if r.accuracy is None else 100 * r.accuracy) for r in run.rounds]


def _share_of_attackers(run: RunRecord) -> list[tuple[int, float | None]]:
    return [(r.round, 100 * r.malicious_mass) for r in run.rounds if r.malicious_mass is not None and run.attacked]


def _proxy_accuracy(run: RunRecord) -> list[tuple[int, float | None]]:
    return [(r.round, 100 * a) for r in run.rounds if (a := r.info.get("proxy_accuracy")) is not None]


def _data(runs: Iterable[Planned]) -> list[RunRecord]:
    return [p.found.run for p in runs if p.found is not None and p.done]


def _begun(plan: Plan, columns: Iterable[tuple[Point, ...]]) -> bool:
    return any(p.done for column in columns for method in plan.methods for p in plan.cell(method, column))


def _labels(column: Iterable[Point]) -> tuple[str, ...]:
    return tuple(point.label for point in column)


def _lines(plan: Plan, column: tuple[Point, ...], values: Values) -> tuple[Line, ...]:
    """Curves by round, a method each."""
    lines = []
    for method in plan.methods:
        runs = [p for p in plan.cell(method, column) if curve(_data([p]), values)]
        points = curve(_data(runs), values)
        if points:
            lines.append(Line(method, tuple(runs), tuple(float(r) for r, _ in points), tuple(s for _, s in points)))
    return tuple(lines)


def _by_round(
    plan: Plan, column: tuple[Point, ...], values: Values, ylabel: str, *names: str,
    level: float | None = None, shared: bool = False,
) -> Panel:  # fmt: skip
    lines, labels = _lines(plan, column, values), (*_labels(column), *names)
    return Panel(labels, lines, "Round", ylabel, _begun(plan, [column]), level=level, shared=shared)


def _curves(plan: Plan) -> list[Panel]:
    return [_by_round(plan, column, _accuracy, "Test accuracy (%)", shared=True) for column in plan.columns]


def _overfit(plan: Plan) -> list[Panel]:
    kinds = (("proxy data", _proxy_accuracy), ("test data", _accuracy))
    return [
        _by_round(plan, column, values, "Accuracy (%)", name, shared=True)
        for column in plan.columns
        for name, values in kinds
    ]


def _mass(plan: Plan) -> list[Panel]:
    """The weight of all attackers together; columns without attack and rules without weights have none."""
    attacked = {p.trial.column for p in plan.runs if p.experiment.attack.rate}
    columns = [column for column in plan.columns if _labels(column) in attacked]
    if not _begun(plan, columns):
        raise UserError(f"no run of {plan.study.name} has attackers whose weight could be drawn")
    return [_by_round(plan, column, _share_of_attackers, "Weight on attackers (%)") for column in columns]


def _weights(plan: Plan) -> list[Panel]:
    if not any(p.found is not None and p.found.run.cohorts for p in plan.runs):
        raise UserError(f"{plan.study.name} is drawn from the weights of clients, which none of its records has")
    cohorts = {p.trial.column: p.experiment.cohort_size for p in plan.runs}
    name = "Mean weight of a poisoned client"
    return [
        _by_round(plan, column, mean_malicious_weight, name, level=1 / cohorts[_labels(column)])
        for column in plan.columns
    ]


def _sweep(plan: Plan) -> list[Panel]:
    """Accuracy against the values of one axis."""
    study = plan.study
    if study.figure.x is None:
        raise UserError(f"{study.name}: figure.x must name the axis of a sweep")
    place = list(study.axes).index(study.figure.x)
    groups: dict[tuple[str, ...], list[tuple[Point, ...]]] = {}
    for column in plan.columns:
        groups.setdefault(_labels(p for k, p in enumerate(column) if k != place), []).append(column)
    return [
        Panel(
            labels,
            tuple(line for method in plan.methods if (line := _swept(plan, method, columns, place))),
            study.figure.xlabel or study.figure.x,
            "Weight on attackers (%)" if study.metric == "mass" else "Test accuracy (%)",
            _begun(plan, columns),
            ticks=tuple(float(column[place].value) for column in columns),
            log=study.figure.log,
        )
        for labels, columns in groups.items()
    ]


def _swept(plan: Plan, method: str, columns: Sequence[tuple[Point, ...]], place: int) -> Line | None:
    """A method at the values of an axis; one that is planned at one value only is a level."""
    runs: list[Planned] = []
    points: list[tuple[float, Spread]] = []
    for column in columns:
        cell = [p for p in plan.cell(method, column) if score(_data([p]), plan.study.metric, None)]
        if scored := score(_data(cell), plan.study.metric, None):
            points.append((float(column[place].value), scored.spread))
            runs += cell
    if points and sum(bool(plan.cell(method, column)) for column in columns) == 1 < len(columns):
        ends = [float(column[place].value) for column in columns]
        points = [(x, points[0][1]) for x in (min(ends), max(ends))]
    return Line(method, tuple(runs), tuple(x for x, _ in points), tuple(s for _, s in points)) if points else None
