"""What callbacks hear, in a simulation, a run and a grid, and what they can do."""

from __future__ import annotations

import json

import pytest

from smartfl.errors import UserError
from smartfl.experiment.resolved import Resolved
from smartfl.runs.execute import default_path, execute
from smartfl.runs.grid import Cell, run_grid
from smartfl.simulation import Simulation
from smartfl.tracking.callback import Callback
from smartfl.tracking.choice import read_callbacks
from smartfl.tracking.early_stopping import EarlyStopping


class Hearing(Callback):
    """Notes everything."""

    def __init__(self, stop=None):
        self.heard, self.stop = [], stop

    def on_start(self, run):
        self.heard.append(("start", run.path, run.done))

    def on_round(self, run, record):
        self.heard.append(("round", run.path, record.round))
        return record.round == self.stop

    def on_end(self, run, result):
        self.heard.append(("end", run.path, result and result.rounds))


def test_a_simulation_tells_its_callbacks(tiny):
    hearing = Hearing()
    result = Simulation(tiny(), executor="serial", callbacks=[hearing]).run()
    assert hearing.heard == [("start", None, 0), ("round", None, 1), ("round", None, 2), ("end", None, 2)]
    assert result.rounds == 2


def test_a_run_that_is_broken_off_ends_without_a_result_and_goes_on_where_it_was(tiny, tmp_path):
    class Breaking(Callback):
        def on_round(self, run, record):
            raise KeyboardInterrupt

    path, first, second = tmp_path / "run", Hearing(), Hearing()
    with pytest.raises(KeyboardInterrupt):
        execute(tiny(), path, executor="serial", callbacks=[first, Breaking()])
    assert first.heard == [("start", path, 0), ("round", path, 1), ("end", path, None)]
    execute(tiny(), path, executor="serial", resume=True, callbacks=[second])
    assert second.heard == [("start", path, 1), ("round", path, 2), ("end", path, 2)]
    execute(tiny(), path, executor="serial", resume=True, callbacks=[second])
    assert len(second.heard) == 3  # a run that is finished calls nothing


@pytest.mark.parametrize("evaluate_every", [1, 2])
def test_a_callback_ends_a_run(tiny, tmp_path, evaluate_every):
    """It asks for it in round 1 of 4; where that is not evaluated, the run ends with round 2. All others hear of it."""
    experiment, last = tiny(rounds=4, evaluate_every=evaluate_every), Hearing()
    found = execute(experiment, tmp_path / "run", executor="serial", callbacks=[Hearing(stop=1), last])
    assert found.rounds == evaluate_every
    assert last.heard[-1] == ("end", tmp_path / "run", evaluate_every)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rounds"] == evaluate_every
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == evaluate_every
    again = execute(experiment, tmp_path / "run", executor="serial", resume=True)
    assert again == found


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_grid_tells_callbacks_of_all_runs_in_this_process(tiny, tmp_path, jobs):
    """And one of them is ended after round 1 of 3 from here."""

    class StopOne(Hearing):
        def on_round(self, run, record):
            super().on_round(run, record)
            return run.experiment.seed == 1

    experiments = [Resolved.of(tiny(rounds=3).model_copy(update={"seed": s})).experiment for s in (0, 1)]
    cells = [Cell(experiment, default_path(experiment, tmp_path)) for experiment in experiments]
    hearing = StopOne()
    run_grid(cells, jobs=jobs, callbacks=[hearing])
    for cell, rounds in zip(cells, (3, 1), strict=True):
        mine = [(kind, number) for kind, path, number in hearing.heard if path == cell.path]
        assert mine == [("start", 0), *(("round", t) for t in range(1, rounds + 1)), ("end", rounds)]


def test_early_stopping_counts_evaluations_without_gain(tiny, tmp_path):
    """Accuracies rise, so a gain of 1 is never reached: patience 2 ends after the first and two more."""
    stopping = EarlyStopping(patience=2, gain=1.0)
    assert execute(tiny(rounds=9), tmp_path / "a", executor="serial", callbacks=[stopping]).rounds == 3
    assert execute(tiny(rounds=4), tmp_path / "b", executor="serial", callbacks=[EarlyStopping(4)]).rounds == 4


def test_early_stopping_counts_rounds_of_before(tiny, tmp_path):
    """Cut after round 2 and gone on with by another object: it ends where one in one go would."""

    class Breaking(Callback):
        def on_round(self, run, record):
            if record.round == 2:
                raise KeyboardInterrupt

    path, experiment = tmp_path / "run", tiny(rounds=9)
    with pytest.raises(KeyboardInterrupt):
        execute(experiment, path, executor="serial", callbacks=[Breaking()])
    stopping = EarlyStopping(patience=2, gain=1.0)
    assert execute(experiment, path, executor="serial", resume=True, callbacks=[stopping]).rounds == 3


def test_callbacks_by_name():
    (found,) = read_callbacks(["early_stopping,patience=3,metric=proxy_loss"])
    assert found == EarlyStopping(patience=3, metric="proxy_loss")
    for text, named in (
        ("early_stoping", "early_stoping"),
        ("early_stopping,patience", "NAME,KEY=VALUE"),
        ("early_stopping,patience=0", "patience = 0"),
        ("early_stopping,colour=1", "colour"),
        ("pathlib:Path", "must make a smartfl.tracking.callback.Callback"),
    ):
        with pytest.raises(UserError, match=named):
            read_callbacks([text])
