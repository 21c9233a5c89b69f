"""The records of a study, under the study's own names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from smartfl.errors import UserError
from smartfl.records.run import RunRecord

if TYPE_CHECKING:
    from smartfl.reproduce.plan import Plan, Planned

MOST = 20  # rows of a table, curves of a chart: beyond that nobody finds anything on a page


def study_runs(plan: Plan) -> list[RunRecord]:
    """Every run of which a round is recorded, called by its method's label and its place on the axes that vary."""
    study, begun = plan.study, [planned for planned in plan.runs if planned.done]
    if not begun:
        raise UserError(
            f"no run of {study.name} is on record where --out and --results look: smartfl reproduce makes them"
        )
    axes = _varying(begun)
    called = [" · ".join([study.methods[p.trial.method].label, *(p.trial.column[k] for k in axes)]) for p in begun]
    if (count := len(set(called))) > MOST:
        names = list(study.axes)
        where = "".join(f" --where {names[k]}=…" for k in axes)
        raise UserError(f"{study.name} has {count} rows on record and a page shows {MOST}: choose by --only …{where}")
    return [replace(p.found.run, called=name) for p, name in zip(begun, called, strict=True) if p.found is not None]


def _varying(begun: Sequence[Planned]) -> list[int]:
    """The places of the axes on which the runs do not all share a point."""
    return [k for k, labels in enumerate(zip(*(p.trial.column for p in begun), strict=True)) if len(set(labels)) > 1]
