"""A quantity by round, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread

Values = Callable[[RunRecord], list[tuple[int, float | None]]]


def curve(runs: Iterable[RunRecord], values: Values) -> list[tuple[int, Spread]]:
    """A method's value by round, over the seeds that have that round."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for r, value in values(run):
            if value is not None:
                found.setdefault(r, []).append(value)
    return [(r, spread) for r in sorted(found) if (spread := Spread.of(found[r])) is not None]
