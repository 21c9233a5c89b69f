"""Our test accuracy after some rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from smartfl.errors import UserError
from smartfl.experiment.study import Point
from smartfl.reproduce.metrics import score
from smartfl.reproduce.plan import Plan, Planned
from smartfl.reproduce.table import Comparison, Entry, Row, State


def by_round(plan: Plan, rounds: Iterable[int]) -> Comparison:
    """Rows of methods, a block per column of the study and in it a column per round.

    A run that is in progress counts at the rounds behind it.  The paper has no numbers by round.
    """
    study, longest = plan.study, max(planned.experiment.rounds for planned in plan.runs)
    wanted = sorted(set(rounds))
    if wrong := [t for t in wanted if not 1 <= t <= longest]:
        raise UserError(f"--at: round {wrong[0]} is not one of the runs' rounds, 1 to {longest}")
    columns = tuple((*c, Point(label=str(t))) for c in plan.columns for t in wanted)
    rows = tuple(
        Row(
            method,
            study.methods[method].label,
            tuple(_entry(plan.cell(method, column), t) for column in plan.columns for t in wanted),
        )
        for method in plan.methods
    )
    axes = (*study.axes, "round")
    return Comparison(study.name, study.title, study.notes, "final", "final", axes, columns, rows, by_round=True)


def _entry(runs: list[Planned], last: int) -> Entry:
    """The runs of a cell as if they had ended after round ``last``."""
    planned = runs[0].experiment.rounds if runs else 0
    begun = [p for p in runs if p.done]
    there = [p for p in begun if p.done >= last]
    ended = [
        replace(p.found.run, rounds=tuple(r for r in p.found.run.rounds if r.round <= last))
        for p in there
        if p.found is not None
    ]
    found = score(ended, "final", None)
    state: State = "in progress" if begun else "not run"
    if found:
        state = "done" if len(there) == len(runs) else "some seeds"
    elif there or last > planned:
        state = "does not apply"  # nothing was evaluated by then, or the run is shorter
    done = min((p.done for p in there or begun), default=0)
    return Entry(state, None, found, (len(there), len(runs)), (done, planned), 2)
