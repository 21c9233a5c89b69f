"""Baseline settings chosen as in the paper: every candidate of a grid, on a stated budget, the best accuracy wins."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w
from pydantic import Field, ValidationError

from smartfl.errors import UserError
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment, Table
from smartfl.experiment.study import Exclusion, Method, Selection, Study, check, flat, merged
from smartfl.registry import explain
from smartfl.reproduce.metrics import score
from smartfl.reproduce.plan import Plan
from smartfl.runs.atomic import write_text

# Section "Detailed hyperparameter setting": the learning rate from [5e-5, 1e-2], the epochs from {1, 5, 10, 20}.
SERVER = {"aggregator.lr": (5e-5, 5e-4, 1e-3, 1e-2), "aggregator.server_epochs": (1, 5, 10, 20)}
# FedProx's own suggestion, which the paper follows.
PROXIMAL = {"client.mu": (0.001, 0.01, 0.1, 0.5, 1.0)}
GRIDS: dict[str, Mapping[str, tuple[float, ...]]] = {
    "fedprox": PROXIMAL,
    "feddf": SERVER,
    "fedbe": SERVER,
    "finetune": SERVER,
    "fltrust": SERVER,
}
# The tables that make a cell; how long a run is, how often it is evaluated and its seed are no part of it.
CELL = ("data", "model", "client", "attack", "aggregator")


class Budget(Table):
    """What a choice cost."""

    rounds: int
    seed: int
    columns: int
    candidates: int


class Choice(Table):
    """The settings that won, where they apply, and what that rests on.

    study, where   what was asked for
    candidates     all that were tried, in the order of the grid: the accuracy, and dotted settings
    common, cells  dotted settings of the cells: what all share, and what each has of its own
    """

    study: str
    method: str
    where: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    budget: Budget
    accuracy: float
    settings: dict[str, Any]
    candidates: tuple[dict[str, int | float], ...]
    common: dict[str, Any]
    cells: tuple[dict[str, Any], ...]

    @property
    def tuned_on(self) -> list[dict[str, Any]]:
        """The cells, with the defaults of today for settings that did not exist then."""
        return [cell_of(Experiment.of(nested({**self.common, **cell})), self.settings) for cell in self.cells]

    def replaces(self, earlier: Choice) -> bool:
        """Whether an earlier choice was made for the same method and the same cells."""
        ours, theirs = self.tuned_on, earlier.tuned_on
        same = len(ours) == len(theirs) and all(cell in theirs for cell in ours)
        return same and self.method == earlier.method


def cell_of(experiment: Experiment, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting, written out, that makes the cell of an experiment, without those that were ``chosen``."""
    tables = Resolved.complete(experiment).tables()
    without = dict(flat(chosen))
    return {k: v for k, v in flat({name: tables[name] for name in CELL}) if k not in without}


class Choices(Table):
    """A file of choices."""

    choice: tuple[Choice, ...] = ()


def read_choices(path: Path | None, setting: str = "--tuned") -> tuple[Choice, ...]:
    """The choices in ``path``, by default those that ship with the package; ``setting`` is what named it."""
    source = files(__package__) / "tuned.toml" if path is None else path
    try:
        return Choices.model_validate(tomllib.loads(source.read_text(encoding="utf-8"))).choice
    except OSError as error:
        raise UserError(f"{setting} = '{path}' cannot be read: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{setting} = '{path}' is not valid TOML: {error}") from error
    except ValidationError as error:
        raise UserError(f"{setting} = '{path}': {explain(error, '', list(Choice.model_fields))}") from error


def with_choices(selection: Selection, study: Study, choices: Iterable[Choice]) -> Selection:
    """The selection with the settings chosen for its methods, in the columns of ``study`` whose cells were tuned on.

    A setting of --set that is part of a cell makes it another one.
    """
    found: list[tuple[str, Mapping[str, tuple[str, ...]], Mapping[str, Any]]] = []
    for choice in choices:
        method = choice.method
        if method not in study.methods or (selection.only and method not in selection.only):
            continue
        cells = choice.tuned_on
        trials = study.trials(replace(selection, only=(method,), seeds=1))
        columns = [trial.column for trial in trials if cell_of(trial.experiment, choice.settings) in cells]
        places = [{axis: (label,) for axis, label in zip(study.axes, column, strict=True)} for column in columns]
        found += [(method, place, choice.settings) for place in places]
    return replace(selection, tuned=tuple(found))


def candidates(study: Study, method: str, seed: int, settings: Sequence[str] = ()) -> Study:
    """The study with the method's candidates in place of its methods, and one seed.

    Candidates are evaluated every round, so that the last ten evaluated rounds are the last ten.  ``settings`` are
    those of --set: what is tuned cannot be set.
    """
    check([method], [name for name in study.methods if name in GRIDS], "--method")
    grid = GRIDS[method]
    for key in (text.partition("=")[0].strip() for text in settings):
        fixed = {"evaluate_every": "is 1 in a tuning", "rounds": "is what --rounds says", "seed": "is what --seed says"}
        if why := "is tuned" if key in grid else fixed.get(key):
            raise UserError(f"--set {key}: it {why}, and cannot be set for {method}")
    original = study.methods[method]
    found: dict[str, Method] = {}
    for k, values in enumerate(product(*grid.values())):
        tried = dict(zip(grid, values, strict=True))
        label = f"{original.label}, " + ", ".join(f"{key.rpartition('.')[2]} {v:g}" for key, v in tried.items())
        changes = merged(original.changes, {**nested(tried), "evaluate_every": 1})
        found[f"{method}-{k:02d}"] = Method(label=label, **changes)
    exclude = tuple(Exclusion(methods=tuple(found), when=e.when) for e in study.exclude if method in e.methods)
    changed = {"methods": found, "exclude": exclude, "seeds": 1, "base": merged(study.base, {"seed": seed})}
    shown = {"title": f"{original.label} for {study.name}", "paper": None, "metric": "converged", "coefficients": False}
    return study.model_copy(update={**changed, **shown})


def choose(plan: Plan, study: Study, method: str, where: Mapping[str, tuple[str, ...]]) -> Choice:
    """The candidate with the highest accuracy over the last ten rounds, averaged over the columns."""
    accuracies: dict[str, float] = {}
    for candidate in plan.methods:
        cells = [cell for column in plan.columns if (cell := plan.cell(candidate, column))]
        found = [score([p.found.run for p in cell if p.found and p.finished], "converged", None) for cell in cells]
        if found and all(found):
            accuracies[candidate] = fmean(s.spread.mean for s in found if s) / 100
    done, wanted = len(accuracies), len(plan.methods)
    if done < wanted:
        raise UserError(f"only {done} of {wanted} candidates are finished: run smartfl tune again")
    best = max(accuracies, key=lambda name: accuracies[name])
    changes = {name: dict(flat(plan.study.methods[name].changes)) for name in accuracies}
    tried = {name: {key: changes[name][key] for key in GRIDS[method]} for name in accuracies}
    settings = nested(tried[best])
    # Candidates differ in nothing but what is chosen: the runs of one show all cells.
    tuned_on = [cell_of(p.experiment, settings) for p in plan.runs if p.trial.method == plan.methods[0]]
    common = {k: v for k, v in tuned_on[0].items() if all(k in cell and cell[k] == v for cell in tuned_on)}
    first = plan.runs[0].experiment
    return Choice(
        study=study.name,
        method=method,
        where=dict(where),
        budget=Budget(rounds=first.rounds, seed=first.seed, columns=len(plan.columns), candidates=wanted),
        accuracy=accuracies[best],
        settings=settings,
        candidates=tuple({"accuracy": accuracies[name], **tried[name]} for name in accuracies),
        common=common,
        cells=tuple({k: v for k, v in cell.items() if k not in common} for cell in tuned_on),
    )


def recorded(path: Path) -> tuple[Choice, ...]:
    """The choices in a file that --record names, which need not be there."""
    return read_choices(path, "--record") if path.exists() else ()


def record(choice: Choice, path: Path) -> None:
    """Add a choice to a file, in place of an earlier one for the same cells."""
    kept = [c for c in recorded(path) if not choice.replaces(c)]
    tables = {"choice": [c.model_dump(mode="json") for c in [*kept, choice]]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, tomli_w.dumps(tables))
    except OSError as error:
        raise UserError(f"--record = '{path}' cannot be written: {error.strerror or error}") from error


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables."""
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return tables
