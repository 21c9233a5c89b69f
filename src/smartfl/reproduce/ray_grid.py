"""The runs of a study on a Ray cluster: every run a task of its own, on one core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smartfl.errors import InUse, UserError
from smartfl.experiment.files import read_experiment, write_experiment
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.runs.atomic import write_bytes
from smartfl.runs.grid import Cell, tell_failures
from smartfl.tracking.callback import Callback, Callbacks, Run

RESULT = "result.json"  # written last: it says that a run is whole


def run_on_ray(cells: Sequence[Cell], *, device: str = "cpu", callbacks: Sequence[Callback] = ()) -> None:
    """Run every cell as a Ray task; ``callbacks`` hear of all of them, in this process.

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
        tell_failures(_run_all(ray, cells, device, Callbacks(callbacks)), len(cells))
    finally:
        if started:
            ray.shutdown()


def _run_all(ray: Any, cells: Sequence[Cell], device: str, callback: Callback) -> list[str]:
    """What failed.  Waits for the tasks, and for what they have to tell meanwhile."""
    post = ray.remote(num_cpus=0)(Post).remote()
    task = ray.remote(num_cpus=1, max_retries=2)(_run)
    waiting = {
        task.remote(write_experiment(cell.experiment), str(cell.path.resolve()), device, post, k): cell
        for k, cell in enumerate(cells)
    }
    failures: list[str] = []
    begun: dict[int, Run] = {}
    letter = post.take.remote()
    while waiting:
        (ready,), _ = ray.wait([letter, *waiting], num_returns=1)
        if ready == letter:
            number, kind, content = ray.get(letter)
            post.answer.remote(number, _hear(callback, begun, cells[number], number, kind, content))
            letter = post.take.remote()
            continue
        cell = waiting.pop(ready)
        try:
            kind, answer = ray.get(ready)
        except ray.exceptions.RayError as error:
            failures.append(f"the run '{cell.path}' failed: {error}")
            continue
        if kind == "user":
            raise UserError(answer)
        if kind == "failure":
            failures.append(answer)
            continue
        _bring_home(cell.path, answer)
    for run in begun.values():  # of tasks that died
        callback.on_end(run, None)
    return failures


def _hear(callback: Callback, begun: dict[int, Run], cell: Cell, number: int, kind: str, content: Any) -> bool:
    """Tell ``callback`` what a task tells; whether its run is to end."""
    if kind == "start":
        begun[number] = replace(content, path=cell.path)  # as it is called here
        callback.on_start(begun[number])
    elif kind == "round":
        return bool(callback.on_round(begun[number], content))
    else:
        callback.on_end(begun.pop(number), content)
    return False


class Post:
    """An actor between the tasks and the process that started them: a task waits for the answer to what it tells."""

    def __init__(self) -> None:
        import asyncio

        self._letters: asyncio.Queue[tuple[int, str, Any]] = asyncio.Queue()
        self._answers: dict[int, asyncio.Queue[bool]] = {}

    async def tell(self, number: int, kind: str, content: Any) -> bool:
        import asyncio

        self._answers[number] = asyncio.Queue()  # a task that was broken and begins anew waits for nothing old
        await self._letters.put((number, kind, content))
        return await self._answers[number].get()

    async def take(self) -> tuple[int, str, Any]:
        return await self._letters.get()

    async def answer(self, number: int, stop: bool) -> None:
        await self._answers[number].put(stop)


class _Telling(Callback):
    """A task's only callback: tells everything to the post."""

    def __init__(self, post: Any, number: int) -> None:
        self._post, self._number = post, number

    def on_start(self, run: Run) -> None:
        self._tell("start", run)

    def on_round(self, run: Run, record: RoundRecord) -> bool:
        return self._tell("round", record)

    def on_end(self, run: Run, result: Result | None) -> None:
        self._tell("end", result)

    def _tell(self, kind: str, content: Any) -> bool:
        import ray

        return bool(ray.get(self._post.tell.remote(self._number, kind, content)))


def _run(experiment: str, path: str, device: str, post: Any = None, number: int = 0) -> tuple[str, Any]:
    """A task: ("done", the run's files), ("user", what the user did wrong) or ("failure", why it was not run)."""
    import tempfile

    import torch

    from smartfl.runs.execute import execute

    torch.set_num_threads(1)
    callbacks = [] if post is None else [_Telling(post, number)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(experiment, encoding="utf-8")
        try:
            chosen = read_experiment(file)
            execute(chosen, Path(path), resume=True, executor="serial", device=device, callbacks=callbacks)
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
