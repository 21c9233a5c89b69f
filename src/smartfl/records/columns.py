"""The rounds of a run as columns: a list a quantity, far smaller than a table a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from smartfl.records.round import COHORT, RoundRecord

DIGITS = 6  # significant ones of every number
NESTED = ("seconds", "info")  # tables, whose keys become columns ``info.steps``


def to_columns(rounds: Iterable[RoundRecord], cohorts: bool) -> dict[str, list[Any]]:
    """A list for every quantity that any round has; None in the rounds that have it not.

    The clients and their weights are left out unless ``cohorts``.
    """
    rows = [_flat(record, cohorts) for record in rounds]
    return {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}


def from_columns(columns: Mapping[str, list[Any]]) -> tuple[RoundRecord, ...]:
    """The records that ``to_columns`` was given."""
    rounds = []
    for place in range(len(columns.get("round", ()))):
        line: dict[str, Any] = {name: {} for name in NESTED}
        for key, values in columns.items():
            if (value := values[place]) is not None:
                table, dot, name = key.partition(".")
                if dot and table in NESTED:
                    line[table][name] = value
                else:
                    line[key] = value
        rounds.append(RoundRecord.of(line, line))
    return tuple(rounds)


def _flat(record: RoundRecord, cohorts: bool) -> dict[str, Any]:
    """A round's quantities, without those that are empty."""
    line = record.round_line()
    if cohorts and record.ids:
        line |= {key: value for key, value in record.coefficients_line().items() if key in COHORT}
    for name in NESTED:
        line |= {f"{name}.{key}": value for key, value in (line.pop(name) or {}).items()}
    return {key: _short(value) for key, value in line.items() if value not in (None, [], (), {})}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return value
