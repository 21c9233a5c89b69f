"""Run an experiment in a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.runs.directory import RunDirectory
from smartfl.runs.environment import environment
from smartfl.simulation import Simulation
from smartfl.tracking.callback import Callback, Callbacks, Run, follow


def default_path(experiment: Experiment | Resolved, root: Path) -> Path:
    """``<root>/<name>-<digest>`` of the resolved experiment."""
    resolved = Resolved.of(experiment).experiment
    return root / f"{resolved.name}-{resolved.digest}"


def execute(
    experiment: Experiment | Resolved,
    path: Path,
    *,
    resume: bool = False,
    fresh: bool = False,
    workers: int | None = None,
    executor: Literal["processes", "serial"] = "processes",
    device: str = "cpu",
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run ``experiment`` to its end in the run directory ``path``; ``callbacks`` hear of it.

    A run that was finished before is not run again.  After an exception or Ctrl-C ``resume`` takes it up.
    """
    resolved = Resolved.of(experiment)
    # Everything that can be the user's mistake is found before the directory exists.
    simulation = Simulation(resolved, workers=workers, executor=executor, device=device)
    run = RunDirectory.open(path, resolved.experiment, resume, fresh)
    with closing(run):
        if (result := run.result()) is not None:
            return result
        if (state := run.restore()) is not None:
            simulation.restore(state)
        run.write_environment(environment(simulation.workers, executor, device), goes_on=state is not None)
        callback, told, result = Callbacks(callbacks), Run(resolved.experiment, path, simulation.state.round), None
        callback.on_start(told)
        try:
            with closing(simulation.rounds()) as records:
                for _ in follow(_kept(records, run, simulation), told, callback):
                    pass
            result = run.finish(simulation.state, simulation.specs)
        finally:
            callback.on_end(told, result)
        return result


def _kept(records: Iterator[RoundRecord], run: RunDirectory, simulation: Simulation) -> Iterator[RoundRecord]:
    """The records, each after it is on disk."""
    for record in records:
        run.add(record, simulation.state)
        yield record
