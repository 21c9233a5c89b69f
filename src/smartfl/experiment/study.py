"""A study: the experiments behind one table or figure, as methods × axes × seeds in one TOML file.

title   = "Table 4: 20 Newsgroups"
metric  = "maximum"                    # what the table shows of a run
[base.data]                            # what all experiments share
dataset = "20newsgroups"
[axes]
data.alpha = [0.01, 0.04, 0.16]        # a setting and its values
[[axes.features]]                      # or settings that change together, under a label
label = "unit length"
data.options.norm = "l2"
[methods.krum]                         # what a method changes
paper = "Krum"                         # its name in the paper's tables
aggregator.name = "krum"
[[exclude]]
methods = ["krum"]
when.attack.rate = [0.7]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from smartfl.errors import UserError
from smartfl.experiment.files import override, safe_name
from smartfl.experiment.schema import Experiment, Table
from smartfl.registry import explain

Metric = Literal["converged", "maximum", "final", "trend", "rounds", "mass"]
Kind = Literal["curves", "weights", "mass", "sweep", "overfit"]
TABLES = frozenset(Experiment.model_fields)


class _Changes(BaseModel):
    """Keys of an experiment that change, beside keys of our own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def changes(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _known(self) -> _Changes:
        if unknown := [key for key in self.changes if key not in TABLES]:
            accepted = [*type(self).model_fields, *Experiment.model_fields]
            raise ValueError(f"'{unknown[0]}' is not a setting; accepted: {', '.join(accepted)}")
        return self


class Point(_Changes):
    """A place on an axis; ``target`` is the accuracy whose first round counts, for the metric "rounds"."""

    label: str
    target: float | None = Field(None, gt=0, le=1)
    value: Any = None  # of the setting, where the axis is one


class Method(_Changes):
    """A row of the table; ``paper`` is its name in the paper's tables, ``label`` its name in ours."""

    label: str
    paper: str | None = None


class Exclusion(Table):
    """Methods that do not apply at some points of an axis."""

    methods: tuple[str, ...]
    when: dict[str, tuple[Any, ...]]

    @field_validator("when", mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        return dict(flat(value)) if isinstance(value, Mapping) else value


class Drawing(Table):
    """How the study is drawn; ``x`` names the axis of a sweep."""

    kind: Kind = "curves"
    x: str | None = None
    xlabel: str = ""
    log: bool = False


@dataclass(frozen=True)
class Trial:
    """One run of a study: a method at a point of every axis, with a seed."""

    method: str
    points: tuple[Point, ...]
    seed: int
    experiment: Experiment

    @property
    def column(self) -> tuple[str, ...]:
        return tuple(point.label for point in self.points)

    @property
    def target(self) -> float | None:
        """The accuracy to be reached."""
        return next((point.target for point in self.points if point.target is not None), None)


@dataclass(frozen=True)
class Selection:
    """The part of a study that is wanted, and what is changed in it.

    where      axis → the values (or labels) to keep
    settings   ``key=value`` as of --set, over everything else
    tuned      (method, where, changes): chosen settings of a method, at those values of the axes
    """

    only: tuple[str, ...] = ()
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: int | None = None
    rounds: int | None = None
    settings: tuple[str, ...] = ()
    tuned: tuple[tuple[str, Mapping[str, tuple[str, ...]], Mapping[str, Any]], ...] = ()


class Study(Table):
    """A parsed study file."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    title: str
    paper: str | None = None
    metric: Metric = "converged"
    seeds: int = Field(3, ge=1)
    coefficients: bool = Field(False, description="whether a figure needs the clients' weights")
    notes: str = ""
    base: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, tuple[Point, ...]] = Field(default_factory=dict)
    methods: dict[str, Method] = Field(min_length=1)
    exclude: tuple[Exclusion, ...] = ()
    figure: Drawing = Drawing()

    @classmethod
    def of(cls, tables: Mapping[str, Any]) -> Study:
        """A study from plain tables; a mistake is one sentence."""
        try:
            return cls.model_validate(dict(tables))
        except ValidationError as error:
            raise UserError(f"study '{tables.get('name')}': {explain(error, '', list(cls.model_fields))}") from error

    @field_validator("axes", mode="before")
    @classmethod
    def _points(cls, value: Any) -> Any:
        points = {}
        for key, values in flat(_table(value)):
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"axes.{key} = {values!r}: a list of at least one value is accepted")
            points[key] = [_point(key, v) for v in values]
        return points

    @field_validator("methods", mode="before")
    @classmethod
    def _labels(cls, value: Any) -> Any:
        for key, method in _table(value).items():
            if not isinstance(method, Mapping):
                raise ValueError(f"methods.{key} = {method!r}: a table is accepted, [methods.{key}]")
        return {key: {"label": key, **method} for key, method in value.items()}

    @model_validator(mode="after")
    def _names_agree(self) -> Study:
        for axis, points in self.axes.items():
            labels = [point.label for point in points]
            if again := next((label for label in labels if labels.count(label) > 1), None):
                raise ValueError(f"axes.{axis}: two points are called '{again}'; a label of its own tells them apart")
        for exclusion in self.exclude:
            check(exclusion.methods, self.methods, "exclude.methods")
            for axis, values in exclusion.when.items():
                self.points_at(axis, map(str, values), "exclude.when")
        if self.figure.x is not None:
            check([self.figure.x], self.axes, "figure.x")
            if not all(isinstance(point.value, int | float) for point in self.axes[self.figure.x]):
                raise ValueError(f"figure.x = '{self.figure.x}': the axis of a sweep must be a setting with numbers")
        if self.metric == "rounds" and not any(p.target for points in self.axes.values() for p in points):
            raise ValueError("the metric 'rounds' needs points with a target")
        return self

    def drawn_as(self, kind: str) -> Study:
        """The same study with another kind of figure."""
        accepted = [k for k in get_args(Kind) if k != "sweep" or self.figure.x is not None]
        if kind not in accepted:
            raise UserError(f"--kind = '{kind}': accepted for {self.name} are {', '.join(accepted)}")
        return self.model_copy(update={"figure": self.figure.model_copy(update={"kind": kind})})

    def points_at(self, axis: str, values: Iterable[str], setting: str) -> list[Point]:
        """The points of an axis that some values or labels name; a wrong name is the user's mistake."""
        check([axis], self.axes, setting)
        found = []
        for value in values:
            matching = [point for point in self.axes[axis] if named(point, value)]
            if not matching:
                known = ", ".join(_shown(p.value) if p.value is not None else p.label for p in self.axes[axis])
                raise UserError(f"{setting}: {axis} = {value} is not in the study; accepted: {known}")
            found += [point for point in matching if point not in found]
        return found

    def trials(self, selection: Selection | None = None) -> list[Trial]:
        """Every wanted run, seed by seed, so that a table fills evenly; method by method within a column."""
        selection = selection or Selection()
        check(selection.only, self.methods, "--only")
        kept = {axis: list(points) for axis, points in self.axes.items()}
        for axis, values in selection.where.items():
            kept[axis] = self.points_at(axis, values, "--where")
        columns = list(product(*kept.values()))
        methods = [name for name in self.methods if not selection.only or name in selection.only]
        seeds = selection.seeds or self.seeds
        cells = [(m, c) for c in columns for m in methods if not self._excluded(m, c)]
        first = [Trial(m, c, 0, self._experiment(m, c, selection)) for m, c in cells]
        return [_with_seed(trial, seed) for seed in range(seeds) for trial in first]

    def _excluded(self, method: str, column: Sequence[Point]) -> bool:
        return any(method in e.methods and self.lies_at(column, e.when) for e in self.exclude)

    def lies_at(self, column: Sequence[Point], where: Mapping[str, Iterable[Any]]) -> bool:
        """Whether a column has one of the wanted values on every axis that ``where`` names."""
        at = dict(zip(self.axes, column, strict=True))
        return all(any(named(at[axis], str(value)) for value in values) for axis, values in where.items())

    def _experiment(self, method: str, column: Sequence[Point], selection: Selection) -> Experiment:
        tables = self.base
        for point in column:
            tables = merged(tables, point.changes)
        tables = merged(tables, self.methods[method].changes)
        for name, where, chosen in selection.tuned:
            if name == method and self.lies_at(column, where):
                tables = merged(tables, chosen)
        tables = override(tables, selection.settings)
        if selection.rounds is not None:
            tables["rounds"] = selection.rounds
        data = tables.get("data")
        dataset = data.get("dataset", "digits") if isinstance(data, Mapping) else "digits"
        return Experiment.of(tables | {"name": safe_name(f"{dataset}-{method}")})


def named(point: Point, value: str) -> bool:
    """Whether ``value`` means this point: its label, or the same number or word as its value."""
    if value.casefold() == point.label.casefold():
        return True
    if point.value is None:
        return False
    try:
        return float(value) == float(point.value)
    except (TypeError, ValueError):
        return value == _shown(point.value)


def check(given: Iterable[str], known: Iterable[str], setting: str) -> None:
    """Refuse a name that is not known."""
    accepted = list(known)
    for name in given:
        if name not in accepted:
            raise UserError(f"{setting}: '{name}' is unknown; accepted: {', '.join(accepted)}")


def flat(tables: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested tables as dotted keys, in order."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def merged(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``tables`` with ``changes`` written over them, key by key."""
    result = dict(tables)
    for key, value in changes.items():
        inner = result.get(key)
        both = isinstance(value, Mapping) and isinstance(inner, Mapping)
        result[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return result


def _with_seed(trial: Trial, seed: int) -> Trial:
    experiment = trial.experiment.model_copy(update={"seed": trial.experiment.seed + seed})
    return Trial(trial.method, trial.points, seed, experiment)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("a table is accepted")
    return value


def _point(axis: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    changes: Any = value
    for part in reversed(axis.split(".")):
        changes = {part: changes}
    last = axis.rpartition(".")[2]
    shown = _shown(value)
    label = shown.replace("_", " ") if last in ("name", "dataset") else f"{last} {shown}"
    return {"label": label, "value": value, **changes}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as TOML has it
    return f"{value:g}" if isinstance(value, float) else str(value)
