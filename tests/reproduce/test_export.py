"""Records for git: everything a table needs, little else."""

from __future__ import annotations

import pytest

from smartfl.errors import UserError
from smartfl.experiment.study import Selection
from smartfl.records.study_file import read_study
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
    added = export(done, tmp_path / "store")
    assert added == [p.path.name for p in done.runs]
    assert [p.name for p in (tmp_path / "store").iterdir()] == ["runs.jsonl.xz"]
    assert (tmp_path / "store" / "runs.jsonl.xz").stat().st_size < 2500
    elsewhere = plan(study, selection, tmp_path / "nowhere", [tmp_path / "store"])
    assert elsewhere.open == []
    found, expected = (
        [[e.ours_text() for e in row.entries] for row in compare(each).rows] for each in (elsewhere, done)
    )
    assert found == expected
    content = (tmp_path / "store" / "runs.jsonl.xz").read_bytes()
    assert export(done, tmp_path / "store") == []  # nothing twice
    assert export(elsewhere, tmp_path / "store") == []  # nothing onto itself
    assert (tmp_path / "store" / "runs.jsonl.xz").read_bytes() == content


def test_a_file_may_be_named(tmp_path, write_run, study):
    first = plan(study, Selection(), tmp_path / "runs").runs[0]
    write_run(first.experiment, tmp_path / "runs", [0.1, 0.2])
    assert len(export(plan(study, Selection(), tmp_path / "runs"), tmp_path / "mine.jsonl.xz")) == 1
    assert plan(study, Selection(), tmp_path / "nowhere", [tmp_path / "mine.jsonl.xz"]).runs[0].finished


def test_unfinished_runs_stay_at_home(tmp_path, write_run, study):
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.5])
    assert export(plan(study, Selection(), tmp_path), tmp_path / "store") == []
    assert not (tmp_path / "store").exists()


def test_weights_come_along_where_a_figure_needs_them(tmp_path, write_run, study):
    weights = [{"round": t, "ids": [1, 2], "coefficients": [0.25, 0.75], "malicious": [2]} for t in (1, 2)]
    write_run(plan(study, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2], weights)
    (name,) = export(plan(study, Selection(), tmp_path), tmp_path / "store")
    (stored,) = read_study(tmp_path / "store" / "runs.jsonl.xz")
    assert stored.run.cohorts == ()
    needing = study.model_copy(update={"coefficients": True})
    assert export(plan(needing, Selection(), tmp_path), tmp_path / "store") == [name]
    (stored,) = read_study(tmp_path / "store" / "runs.jsonl.xz")
    assert stored.run.rounds[1].coefficients_line() == weights[1]


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
    store = tmp_path / "store"
    assert export(plan(study, early, tmp_path / "runs"), store) == [path.name]
    line = (path / "rounds.jsonl").read_text()
    (path / "rounds.jsonl").write_text(line + line.replace('"round": 1', '"round": 2'))
    later = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=1)
    assert export(plan(study, later, tmp_path / "runs", [store]), store) == [path.name]
    (stored,) = read_study(store / "runs.jsonl.xz")
    assert stored.done == 2
    assert export(plan(study, later, tmp_path / "runs", [store]), store) == []
