"""Records for git: everything a table needs, little else."""

from __future__ import annotations

import json

import pytest

from smartfl.errors import UserError
from smartfl.experiment.study import Selection
from smartfl.reproduce.export import export
from smartfl.reproduce.plan import plan
from smartfl.reproduce.table import compare
from smartfl.runs.execute import execute


def test_export_and_read_back(tmp_path, study):
    """Real runs; the table from the export alone is the table from the run directories."""
    selection = Selection(only=("fedavg", "krum"), seeds=1)
    for cell in plan(study, selection, tmp_path / "runs").open:
        execute(cell.experiment, cell.path, executor="serial")
    done = plan(study, selection, tmp_path / "runs")
    copied = export(done, tmp_path / "store")
    assert len(copied) == 3
    assert {p.parent for p in copied} == {tmp_path / "store" / "digits"}
    assert {p.name for p in copied[0].iterdir()} == {
        "experiment.toml", "environment.json", "rounds.jsonl", "result.json",
    }  # fmt: skip
    assert (copied[0] / "rounds.jsonl").stat().st_size < 220 * 2
    elsewhere = plan(study, selection, tmp_path / "nowhere", [tmp_path / "store"])
    assert elsewhere.open == []
    found, expected = (
        [[e.ours_text() for e in row.entries] for row in compare(each).rows] for each in (elsewhere, done)
    )
    assert found == expected
    assert export(done, tmp_path / "store") == []  # nothing twice
    assert export(elsewhere, tmp_path / "store") == []  # nothing onto itself


def test_unfinished_runs_stay_at_home(tmp_path, write_run, study):
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.5])
    assert export(plan(study, Selection(), tmp_path), tmp_path / "store") == []
    assert not (tmp_path / "store").exists()


def test_six_digits_and_nothing_empty(tmp_path, write_run, study):
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.123456789, 0.5])
    (path,) = export(plan(study, Selection(), tmp_path), tmp_path / "store")
    assert json.loads((path / "rounds.jsonl").read_text().splitlines()[0]) == {
        "round": 1, "accuracy": 0.123457, "loss": 1.0, "malicious_mass": 0.25,
        "seconds": {"train": 0.123457, "aggregate": 0.0, "evaluate": 0.0},
    }  # fmt: skip
    result = json.loads((path / "result.json").read_text())
    assert result == {"final": 0.5, "best": 0.5, "last_ten": pytest.approx(0.3117284), "rounds": 2}


def test_weights_come_along_where_a_figure_needs_them(tmp_path, write_run, study):
    weights = [{"round": t, "ids": [1, 2], "coefficients": [0.25, 0.75], "malicious": [2]} for t in (1, 2)]
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2], weights)
    (path,) = export(plan(study, Selection(), tmp_path), tmp_path / "store")
    assert not (path / "coefficients.jsonl").exists()
    needing = study.model_copy(update={"coefficients": True})
    assert export(plan(needing, Selection(), tmp_path), tmp_path / "store") == [path]
    assert json.loads((path / "coefficients.jsonl").read_text().splitlines()[1]) == weights[1]


def test_a_store_that_cannot_be_written(tmp_path, write_run, study):
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--export = "):
        export(plan(study, Selection(), tmp_path), tmp_path / "file")


def test_a_run_that_went_on_since_is_exported_again(tmp_path, write_run, study):
    """One round of two was asked for and exported; then the same run goes on to its second."""
    early = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=1, rounds=1)
    experiment = plan(study, Selection(), tmp_path / "runs").runs[0].experiment
    path = write_run(experiment, tmp_path / "runs", [0.2])
    (copy,) = export(plan(study, early, tmp_path / "runs"), tmp_path / "store")
    line = (path / "rounds.jsonl").read_text()
    (path / "rounds.jsonl").write_text(line + line.replace('"round": 1', '"round": 2'))
    later = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=1)
    assert export(plan(study, later, tmp_path / "runs", [tmp_path / "store"]), tmp_path / "store") == [copy]
    assert len((copy / "rounds.jsonl").read_text().splitlines()) == 2
    assert export(plan(study, later, tmp_path / "runs", [tmp_path / "store"]), tmp_path / "store") == []
