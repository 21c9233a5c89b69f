"""The same grid on Ray."""

from __future__ import annotations

import importlib.util

import pytest

from smartfl.errors import UserError
from smartfl.experiment.files import write_experiment
from smartfl.experiment.study import Selection
from smartfl.reproduce.plan import plan
from smartfl.reproduce.ray_grid import _bring_home, _run, run_on_ray
from smartfl.runs.execute import execute
from smartfl.tracking.callback import Callback

HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'smartfl[ray]'")
def test_a_grid_on_ray_is_the_grid_here(tmp_path, study, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selection = Selection(only=("fedavg",), seeds=1)
    cells = plan(study, selection, tmp_path / "ray").open
    heard = []

    class Hearing(Callback):
        def on_start(self, run):
            heard.append((run.path, 0))

        def on_round(self, run, record):
            heard.append((run.path, record.round))

        def on_end(self, run, result):
            heard.append((run.path, result.rounds + 1))

    run_on_ray(cells, callbacks=[Hearing()])
    assert sorted(heard) == sorted((cell.path, t) for cell in cells for t in (0, 1, 2, 3))
    assert plan(study, selection, tmp_path / "ray").open == []
    for cell in cells:
        execute(cell.experiment, tmp_path / "here" / cell.path.name, executor="serial")
        for name in ("result.json", "model.safetensors", "coefficients.jsonl"):
            here = tmp_path / "here" / cell.path.name / name
            assert (cell.path / name).read_bytes() == here.read_bytes()


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_one_sentence_says_how_to_get_it(tmp_path, study):
    with pytest.raises(UserError, match=r'--ray needs Ray: pip install "smartfl\[ray\]"'):
        run_on_ray(plan(study, Selection(), tmp_path).open)


def test_a_task_runs_a_cell_and_brings_its_files_home(tmp_path, study):
    """What a remote machine does, done here: run, send the files, write them where they are missing."""
    cell = plan(study, Selection(only=("fedavg",), seeds=1), tmp_path / "here").open[0]
    there = tmp_path / "there"
    kind, files = _run(write_experiment(cell.experiment), str(there), "cpu")
    assert kind == "done"
    assert {"experiment.toml", "rounds.jsonl", "result.json", "model.safetensors"} <= files.keys()
    _bring_home(cell.path, files)
    assert plan(study, Selection(only=("fedavg",), seeds=1), tmp_path / "here").runs[0].finished
    assert not (cell.path / "lock").exists()
    _bring_home(cell.path, {"result.json": b"{}"})  # what is whole is left alone
    assert (cell.path / "result.json").read_bytes() == files["result.json"]


def test_a_mistake_in_a_task_comes_back_as_one(tmp_path, tiny):
    wrong = write_experiment(tiny(data={"clients": 100000}))
    kind, said = _run(wrong, str(tmp_path / "run"), "cpu")
    assert kind == "user"
    assert "data.clients" in said


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'smartfl[ray]'")
def test_a_callback_here_ends_a_run_there(tmp_path, study):
    """After the first of two rounds, with the accuracy of that."""

    class Stopping(Callback):
        def on_round(self, run, record):
            return True

    cells = plan(study, Selection(only=("fedavg",), seeds=1), tmp_path).open[:1]
    run_on_ray(cells, callbacks=[Stopping()])
    assert '"rounds": 1' in (cells[0].path / "result.json").read_text()
