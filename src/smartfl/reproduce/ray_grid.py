"""The runs of a study on a Ray cluster: every run a task of its own, on one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from smartfl.errors import InUse, UserError
from smartfl.experiment.files import read_experiment, write_experiment
from smartfl.runs.atomic import write_bytes
from smartfl.runs.grid import Cell, tell_failures

RESULT = "result.json"  # written last: it says that a run is whole


def run_on_ray(
    cells: Sequence[Cell],
    *,
    device: str = "cpu",
    watch: Callable[[Cell, int, float | None], None] = lambda cell, round, accuracy: None,
) -> None:
    """Run every cell as a Ray task; ``watch`` hears of finished cells.

    RAY_ADDRESS names a cluster, otherwise one is started here.  A run directory that the nodes share is used in place,
    so that a broken task resumes; of others the files of the finished run come back with the result.  As in
    ``run_grid``, a failed run does not stop the others.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError('--ray needs Ray: pip install "smartfl[ray]"') from error
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        task = ray.remote(num_cpus=1, max_retries=2)(_run)
        waiting = {
            task.remote(write_experiment(cell.experiment), str(cell.path.resolve()), device): cell for cell in cells
        }
        failures: list[str] = []
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(ready[0])
            try:
                kind, answer = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                failures.append(f"the run '{cell.path}' failed: {error}")
                continue
            if kind == "user":
                raise UserError(answer)
            if kind == "failure":
                failures.append(answer)
                continue
            _bring_home(cell.path, answer)
            watch(cell, cell.experiment.rounds, None)
        tell_failures(failures, len(cells))
    finally:
        if started:
            ray.shutdown()


def _run(experiment: str, path: str, device: str) -> tuple[str, Any]:
    """A task: ("done", the run's files), ("user", what the user did wrong) or ("failure", why it was not run)."""
    import tempfile

    import torch

    from smartfl.runs.execute import execute

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(experiment, encoding="utf-8")
        try:
            execute(read_experiment(file), Path(path), resume=True, executor="serial", device=device)
        except InUse as error:
            return "failure", str(error)
        except UserError as error:
            return "user", str(error)
    return "done", {file.name: file.read_bytes() for file in Path(path).iterdir() if file.is_file()}


def _bring_home(path: Path, files: dict[str, bytes]) -> None:
    """Write the files of a run that was computed on another machine."""
    if (path / RESULT).exists():
        return
    path.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == RESULT):
        if name != "lock":
            write_bytes(path / name, files[name])
