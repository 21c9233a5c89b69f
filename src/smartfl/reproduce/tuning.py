"""Baseline settings chosen as in the paper: every candidate of a grid, on a stated budget, the best accuracy wins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w
from pydantic import Field, ValidationError

from smartfl.errors import UserError
from smartfl.experiment.schema import Table
from smartfl.experiment.study import Exclusion, Method, Study, check, merged
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


class Budget(Table):
    """What a choice cost."""

    rounds: int
    seed: int
    columns: int
    candidates: int


class Choice(Table):
    """The settings that won, where they apply, and what that rests on."""

    study: str
    method: str
    where: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    budget: Budget
    accuracy: float
    settings: dict[str, Any]


class Choices(Table):
    """A file of choices."""

    choice: tuple[Choice, ...] = ()


def read_choices(path: Path | None) -> tuple[Choice, ...]:
    """The choices in ``path``, by default those that ship with the package."""
    source = files(__package__) / "tuned.toml" if path is None else path
    try:
        return Choices.model_validate(tomllib.loads(source.read_text(encoding="utf-8"))).choice
    except OSError as error:
        raise UserError(f"--tuned = '{path}' cannot be read: {error.strerror or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"--tuned = '{path}' is not valid TOML: {error}") from error
    except ValidationError as error:
        raise UserError(f"--tuned = '{path}': {explain(error, '', list(Choice.model_fields))}") from error


def candidates(study: Study, method: str, seed: int) -> Study:
    """The study with the method's candidates in place of its methods, and one seed."""
    check([method], [name for name in study.methods if name in GRIDS], "--method")
    grid = GRIDS[method]
    original = study.methods[method]
    found: dict[str, Method] = {}
    for k, values in enumerate(product(*grid.values())):
        settings = dict(zip(grid, values, strict=True))
        label = f"{original.label}, " + ", ".join(f"{key.rpartition('.')[2]} {v:g}" for key, v in settings.items())
        changes = merged(original.changes, nested(settings))
        found[f"{method}-{k:02d}"] = Method(label=label, **changes)
    exclude = tuple(Exclusion(methods=tuple(found), when=e.when) for e in study.exclude if method in e.methods)
    changed = {"methods": found, "exclude": exclude, "seeds": 1, "base": merged(study.base, {"seed": seed})}
    title = f"{original.label} for {study.name}"
    return study.model_copy(update={**changed, "title": title, "paper": None, "metric": "converged"})


def choose(plan: Plan, study: Study, method: str, where: Mapping[str, tuple[str, ...]]) -> Choice:
    """The candidate with the highest accuracy over the last ten rounds, averaged over the columns."""
    results: dict[str, float] = {}
    for candidate in plan.methods:
        cells = [cell for column in plan.columns if (cell := plan.cell(candidate, column))]
        found = [score([p.found.run for p in cell if p.found and p.finished], "converged", None) for cell in cells]
        if found and all(found):
            results[candidate] = fmean(s.spread.mean for s in found if s) / 100
    if len(results) < len(plan.methods):
        raise UserError(f"only {len(results)} of {len(plan.methods)} candidates are finished: run smartfl tune again")
    best = max(results, key=lambda name: results[name])
    wanted = {part for key in GRIDS[method] for part in [key.split(".")[0]]}
    changes = plan.study.methods[best].changes
    keys = {key.rpartition(".")[2] for key in GRIDS[method]}
    settings = {table: {k: v for k, v in changes[table].items() if k in keys} for table in sorted(wanted)}
    first = plan.runs[0].experiment
    budget = Budget(rounds=first.rounds, seed=first.seed, columns=len(plan.columns), candidates=len(plan.methods))
    return Choice(
        study=study.name, method=method, where=dict(where), budget=budget, accuracy=results[best], settings=settings
    )


def record(choice: Choice, path: Path) -> None:
    """Add a choice to a file, in place of an earlier one for the same cells."""
    before = read_choices(path) if path.exists() else ()
    place = (choice.study, choice.method, choice.where)
    kept = [c for c in before if (c.study, c.method, c.where) != place]
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
        table, _, last = key.rpartition(".")
        tables.setdefault(table, {})[last] = value
    return tables
