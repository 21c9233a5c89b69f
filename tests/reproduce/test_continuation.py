"""Where a run begins that another has begun: under its lock, and never backwards."""

from __future__ import annotations

import pytest

from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.reproduce.continuation import begin_where
from smartfl.runs.directory import RunDirectory
from smartfl.runs.grid import Cell


@pytest.fixture
def places(tmp_path, write_run):
    """A record of two rounds with its checkpoint, and a cell of four that has not begun."""
    experiment = Resolved.complete(Experiment.of({"rounds": 4, "aggregator": {"name": "fedavg"}}))
    source = write_run(experiment.model_copy(update={"rounds": 2}), tmp_path / "store", [0.1, 0.2])
    (source / "checkpoints").mkdir()
    for ending in ("json", "safetensors"):
        (source / "checkpoints" / f"round-000002.{ending}").write_text("theirs")
    return source, Cell(experiment, tmp_path / "runs" / "cell")


def test_a_cell_that_another_process_took_meanwhile_is_left_to_it(places):
    source, cell = places
    other = RunDirectory.open(cell.path, cell.experiment)
    begin_where(source, cell)
    assert not (cell.path / "rounds.jsonl").exists()
    other.close()
    begin_where(source, cell)
    assert len((cell.path / "rounds.jsonl").read_text().splitlines()) == 2
    assert (cell.path / "checkpoints" / "round-000002.json").read_text() == "theirs"


def test_a_cell_that_is_further_by_now_is_left_alone(places):
    source, cell = places
    begin_where(source, cell)
    (cell.path / "checkpoints" / "round-000003.json").write_text("its own")
    (cell.path / "rounds.jsonl").write_text("its own\n")
    begin_where(source, cell)
    assert (cell.path / "rounds.jsonl").read_text() == "its own\n"
