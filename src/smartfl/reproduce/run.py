"""Run what is left of a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from smartfl.executors.processes import cores
from smartfl.reproduce.continuation import begin_where
from smartfl.reproduce.plan import Plan, in_use
from smartfl.reproduce.progress import StudyProgress, waiting
from smartfl.runs.grid import Cell, run_grid
from smartfl.tracking.callback import Callback

PATIENCE = 60.0  # seconds; the workers of a killed grid end with the round they are in


def run_plan(
    plan: Plan, *, jobs: int | None = None, device: str = "cpu", ray: bool = False, callbacks: Sequence[Callback] = ()
) -> list[Cell]:
    """Run every open run of ``plan`` to its end; returns those that another process holds, which are left to it."""
    cells, held = _free(plan.open)
    if not cells:
        return held
    beginnings = {p.path: p.beginning for p in plan.runs}
    for cell in cells:
        if (source := beginnings[cell.path]) is not None and not ray and not in_use(source):
            begin_where(source, cell)
    side_by_side = min(jobs or cores(), len(cells))
    with StudyProgress(plan, side_by_side) as progress:
        if ray:
            from smartfl.reproduce.ray_grid import run_on_ray

            run_on_ray(cells, device=device, callbacks=[progress, *callbacks])
        else:
            run_grid(cells, jobs=jobs, device=device, callbacks=[progress, *callbacks])
    return held


def _free(
    cells: Sequence[Cell], patience: float = PATIENCE, sleep: Callable[[float], None] = time.sleep
) -> tuple[list[Cell], list[Cell]]:
    """The cells that nobody runs, and the others after some patience."""
    held = [cell for cell in cells if in_use(cell.path)]
    if held:
        waiting(patience, held)
    end = time.monotonic() + patience
    while held and time.monotonic() < end:
        sleep(0.2)
        held = [cell for cell in held if in_use(cell.path)]
    taken = {cell.path for cell in held}
    return [cell for cell in cells if cell.path not in taken], held
