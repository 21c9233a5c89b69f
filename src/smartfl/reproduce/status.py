"""How far studies are."""

from __future__ import annotations

from collections.abc import Sequence

from smartfl.reproduce.plan import Plan, Planned
from smartfl.reproduce.table import counts


def status_text(plans: Sequence[Plan]) -> str:
    """A line a study; of one study alone, a line a method as well."""
    lines = [("", "runs", "finished", "begun", "rounds")]
    lines += [_line(plan.study.name, plan.runs) for plan in plans]
    if len(plans) == 1:
        only = plans[0]
        for method in only.methods:
            runs = [planned for planned in only.runs if planned.trial.method == method]
            lines.append(_line(f"  {method}", runs))
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    shown = [
        "  ".join(c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(x, widths, strict=True)))
        for x in lines
    ]
    return "\n".join(shown) + "\n"


def _line(name: str, runs: Sequence[Planned]) -> tuple[str, str, str, str, str]:
    finished, begun, total = counts(runs)
    done = sum(planned.done for planned in runs)
    return name, str(total), str(finished), str(begun), f"{done}/{sum(p.experiment.rounds for p in runs)}"
