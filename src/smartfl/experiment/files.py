"""Experiments as TOML files, with ``--set`` overrides."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w

from smartfl.errors import UserError
from smartfl.experiment.schema import DEFAULT_NAMES, AttackSettings, Experiment

MOST_BYTES = 1 << 23

# Keys of a named table that keep their meaning when the name changes.
_GENERAL = {"attack": set(AttackSettings.model_fields), "aggregator": set[str](), "model": set[str]()}


def read_experiment(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in ``path`` with ``key=value`` overrides applied; the name defaults to the file's."""
    tables = read_tables(path)
    if "methods" in tables:
        raise UserError(f"'{path}' has [methods] and is a study of many runs: smartfl reproduce {path}")
    tables.setdefault("name", safe_name(path.stem))
    return Experiment.of(override(tables, overrides))


def safe_name(text: str) -> str:
    """``text`` as a name of runs and directories: what may not be in one is a hyphen."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def read_tables(path: Path) -> dict[str, Any]:
    """The raw tables of a TOML file, or of the shipped experiment of that name."""
    shipped = Path(str(files("smartfl.experiment.presets"))) / f"{path.name}.toml"
    if path.parent == Path() and not path.exists() and shipped.exists():
        path = shipped
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(f"it is larger than {MOST_BYTES >> 20} MB")
        return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise UserError(f"file '{path}' does not exist; an experiment that ships with smartfl is 'demo'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"experiment file '{path}' cannot be read: {error}") from error
    except RecursionError:
        raise UserError(f"experiment file '{path}' is not valid TOML: it is nested too deep") from None
    except ValueError as error:  # of TOML, or a number with thousands of digits
        raise UserError(f"experiment file '{path}' is not valid TOML: {error}") from error


def override(tables: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Apply ``a.b=value`` settings to a copy of the tables.

    A new ``aggregator.name`` (or attack, or model) clears the settings of the old one: they would not fit.  The attack
    "none" clears the rate too.
    """
    result: dict[str, Any] = _copy(tables)
    parsed = [_parse(text) for text in settings]
    for path, value in sorted(parsed, key=lambda item: item[0][-1] != "name"):
        table = result
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UserError(f"--set {'.'.join(path)}: '{part}' is not a table")
        renames = path[-1] == "name" and len(path) == 2 and path[0] in _GENERAL
        if renames and table.get("name", DEFAULT_NAMES[path[0]]) != value:
            general = set[str]() if value == "none" else _GENERAL[path[0]]
            for key in set(table) - general:
                del table[key]
        table[path[-1]] = value
    return result


def write_experiment(experiment: Experiment) -> str:
    """The resolved experiment as TOML text."""
    return tomli_w.dumps(_without_none(experiment.tables()))


def _parse(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, for example aggregator.name=krum, got '{text}'")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except RecursionError:
        raise UserError(f"--set {key.strip()}: the value is nested too deep") from None
    except ValueError:
        parsed = value.strip()  # a bare word: --set aggregator.name=krum
    return key.strip().split("."), parsed


def _copy(tables: Any) -> Any:
    if isinstance(tables, dict):
        return {k: _copy(v) for k, v in tables.items()}
    if isinstance(tables, list):
        return [_copy(v) for v in tables]
    return tables


def _without_none(tables: Any) -> Any:
    """TOML has no null: an absent key says the same."""
    if isinstance(tables, dict):
        return {k: _without_none(v) for k, v in tables.items() if v is not None}
    if isinstance(tables, list):
        return [_without_none(v) for v in tables]
    return tables
