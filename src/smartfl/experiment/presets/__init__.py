"""Experiments that ship with the package: one study per table and figure of the paper, and the demo."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from smartfl.errors import UserError

if TYPE_CHECKING:
    from smartfl.experiment.study import Study


def preset_names() -> list[str]:
    """The names of the shipped experiment files, sorted."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")
    )


def study_names() -> list[str]:
    """The tables and figures of the paper."""
    return [name for name in preset_names() if name.startswith(("table", "figure"))]


def shipped_study(name: str) -> str | None:
    """The table or figure of the paper that ``name`` means, in any case."""
    return {each.lower(): each for each in study_names()}.get(name.lower())


def read_study(name: str) -> Study:
    """The study of that name, or in a TOML file of the user's."""
    from smartfl.experiment.files import read_tables, safe_name
    from smartfl.experiment.study import Study

    if shipped := shipped_study(name):
        path = Path(str(files(__name__))) / f"{shipped}.toml"
    elif name.endswith(".toml"):
        path = Path(name)
    else:
        accepted = ", ".join(study_names())
        raise UserError(f"NAME = '{name}' is not a table or figure of the paper; accepted: {accepted}, or a .toml file")
    tables = read_tables(path)
    if "methods" not in tables:
        raise UserError(f"'{name}' has no [methods] and is a plain experiment: smartfl run and compare take it")
    return Study.of({"name": safe_name(path.stem), **tables})
