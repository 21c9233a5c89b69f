"""Run an experiment in a run directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from smartfl.experiment.build import resolve_experiment
from smartfl.experiment.schema import Experiment
from smartfl.records import Result, RoundRecord
from smartfl.runs.directory import RunDirectory
from smartfl.runs.environment import environment
from smartfl.simulation import Simulation


def default_path(experiment: Experiment, root: Path) -> Path:
    """``<root>/<name>-<digest>`` of the resolved experiment."""
    resolved = resolve_experiment(experiment)
    return root / f"{resolved.name}-{resolved.digest}"


def execute(
    experiment: Experiment,
    path: Path,
    *,
    resume: bool = False,
    fresh: bool = False,
    workers: int | None = None,
    executor: Literal["processes", "serial"] = "processes",
    device: str = "cpu",
    watch: Callable[[RoundRecord], None] = lambda record: None,
) -> Result:
    """Run ``experiment`` to its end in the run directory ``path``; ``watch`` sees every round.

    A run that was finished before is not run again.  After an exception or Ctrl-C ``resume`` takes it up.
    """
    resolved = resolve_experiment(experiment)
    # Everything that can be the user's mistake is found before the directory exists.
    simulation = Simulation(resolved, workers=workers, executor=executor, device=device)
    run = RunDirectory.open(path, resolved, resume, fresh)
    with closing(run):
        if (result := run.result()) is not None:
            return result
        if (state := run.restore()) is not None:
            simulation.restore(state)
        run.write_environment(environment(simulation.workers, executor, device), goes_on=state is not None)
        with closing(iter(simulation)) as records:
            for record in records:
                run.add(record, simulation.state)
                watch(record)
        return run.finish(simulation.state, simulation.specs)
