"""What a person types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection
from smartfl.records.lines import read_lines
from smartfl.reproduce.plan import plan
from smartfl.reproduce.run import _free
from smartfl.runs.directory import RunDirectory
from smartfl.runs.execute import execute
from smartfl.tracking.callback import Callback

FEW = ("--only", "fedavg,krum", "--where", "attack.rate=0.25", "--seeds", "1")


@pytest.fixture
def done(type_in):
    """FedAvg and Krum at rate 0.25, one seed, computed."""
    selection = Selection(only=("fedavg", "krum"), where={"attack.rate": ("0.25",)}, seeds=1)
    for cell in plan(read_study("study.toml"), selection, Path("runs")).open:
        execute(cell.experiment, cell.path, executor="serial")
    return type_in


def test_what_is_done_is_not_run_again_and_the_table_is_printed(done):
    before = {p: p.stat().st_mtime_ns for p in Path("runs").rglob("*")}
    status, out, err = done("reproduce", "study.toml", *FEW)
    assert (status, err) == (0, "")
    assert out.startswith("Digits under attack\n")
    assert "not run" not in out
    assert {p: p.stat().st_mtime_ns for p in Path("runs").rglob("*")} == before


def test_what_is_missing_is_run(done):
    """Of three wanted runs two are there: one is added, by a process of its own kind (--jobs 1)."""
    arguments = ("--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1", "--export", "store")
    status, out, err = done("reproduce", "study.toml", *arguments)
    assert status == 0
    assert "Finetuning" in out
    assert "not run" not in out
    assert err.splitlines()[0] == "study: 3 runs, 4 of 6 rounds done"
    assert err.splitlines()[1].startswith("3/3 runs: digits-finetune-")
    assert sum(line.startswith("exported: digits-") for line in err.splitlines()) == 3
    # The store alone is enough from now on: with another --out nothing is run.
    status, again, err = done("reproduce", "study.toml", *arguments[:4], "--out", "other", "--export", "store")
    assert (status, again, err) == (0, out, "")
    assert not Path("other").exists()


def test_status(done):
    status, out, err = done("reproduce", "study.toml", "--status")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["runs", "finished", "begun", "rounds"],
        ["study", "10", "2", "0", "4/20"],
        ["fedavg", "4", "1", "0", "2/8"],
        ["krum", "2", "1", "0", "2/4"],
        ["finetune", "4", "0", "0", "0/8"],
    ]
    status, out, _ = done("reproduce", "study.toml", *FEW, "--export", "results/mine")
    assert (status, done("reproduce", "study.toml", "--status", "--out", "other")[1].split()[5:7]) == (0, ["10", "2"])
    elsewhere = done("reproduce", "study.toml", "--status", "--out", "other", "--export", "store")[1]
    assert elsewhere.split()[5:7] == ["10", "2"]  # results/ counts beside what is exported to
    status, out, _ = done("reproduce", "--status", "--seeds", "1")
    assert (status, len(out.splitlines())) == (0, 14)
    status, out, _ = done("reproduce", "--status", "--seeds", "1", "--only", "krum")
    assert status == 0
    assert {line.split()[0] for line in out.splitlines()[1:]} == {"figure4", "figureA2", "figureA3", "figureA4"}
    status, out, _ = done("reproduce", "study.toml", "--status", "--only", "KRUM,FedAvg")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["fedavg", "krum"]


def test_more_rounds_go_on_where_fewer_ended(done):
    """Two rounds are there; of four, the third is the first to be run, and all are those of a run in one go."""
    for file in Path("runs").glob("*/environment.json"):
        file.write_text(json.dumps({"revision": "old"}))
    arguments = ("--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1", "--rounds", "4")
    status, _, err = done("reproduce", "study.toml", *arguments)
    assert status == 0
    assert err.splitlines()[0] == "study: 1 runs, 2 of 4 rounds done"
    kept = sorted(Path("runs").glob("digits-fedavg-*"))
    assert len(kept) == 2  # the run of two rounds stays
    (longer,) = (p for p in kept if len(read_lines(p / "rounds.jsonl")) == 4)
    assert json.loads((longer / "result.json").read_text())["rounds"] == 4
    assert json.loads((longer / "environment.json").read_text())["earlier_revisions"] == ["old"]
    assert done("reproduce", "study.toml", *arguments, "--out", "whole")[0] == 0
    (one,) = Path("whole").glob("digits-fedavg-*")
    for name in ("coefficients.jsonl", "model.safetensors"):
        assert (longer / name).read_bytes() == (one / name).read_bytes()


def test_a_record_with_its_checkpoint_goes_on_elsewhere(done):
    """Two rounds are exported and the runs are gone: of four, the third is the first to be run, to the same bits."""
    some = ("--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1", "--export", "store")
    assert done("reproduce", "study.toml", *some, "--checkpoints")[0] == 0
    (record,) = Path("store/checkpoints").iterdir()
    files = {p.name for p in record.rglob("*")}
    assert {"round-000002.json", "round-000002.safetensors", "coefficients.jsonl"} < files
    status, _, err = done("reproduce", "study.toml", *some, "--rounds", "4", "--out", "other")
    assert (status, err.splitlines()[0]) == (0, "study: 1 runs, 2 of 4 rounds done")
    assert {p.name for p in record.rglob("*")} == files
    assert done("reproduce", "study.toml", *some[:-2], "--rounds", "4", "--out", "whole")[0] == 0
    (longer,), (one,) = (list(Path(out).glob("digits-fedavg-*")) for out in ("other", "whole"))
    assert (longer / "model.safetensors").read_bytes() == (one / "model.safetensors").read_bytes()
    accuracies = [[line["accuracy"] for line in read_lines(run / "rounds.jsonl")] for run in (longer, one)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=1e-6)


def test_a_record_that_is_not_evaluated_every_round_goes_on_elsewhere(done):
    """Rounds without an accuracy are written without the key; the run that goes on from them ends like any other."""
    some = ("reproduce", "study.toml", "--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1")
    some += ("--set", "evaluate_every=2", "--export", "store")
    assert done(*some, "--checkpoints", "--out", "here")[0] == 0
    status, _, err = done(*some, "--rounds", "4", "--out", "other")
    assert (status, err.splitlines()[0]) == (0, "study: 1 runs, 2 of 4 rounds done")
    (result,) = Path("other").glob("*/result.json")
    assert json.loads(result.read_text())["rounds"] == 4


def test_a_record_that_is_ahead_is_gone_on_from_where_a_run_has_begun(done):
    """A stale run of one round and a record of two: of four, round 3 is the first to be run."""
    some = ("reproduce", "study.toml", "--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1")
    assert done(*some, "--export", "store", "--checkpoints")[0] == 0
    selection = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=1, rounds=4)
    (cell,) = plan(read_study("study.toml"), selection, Path("stale")).open
    with pytest.raises(KeyboardInterrupt):
        execute(cell.experiment, cell.path, executor="serial", callbacks=[Interrupting()])
    assert len(read_lines(cell.path / "rounds.jsonl")) == 1
    first = (cell.path / "rounds.jsonl").read_text()
    status, _, err = done(*some, "--rounds", "4", "--export", "store", "--out", "stale")
    assert (status, err.splitlines()[0]) == (0, "study: 1 runs, 2 of 4 rounds done")
    lines = (cell.path / "rounds.jsonl").read_text()
    assert len(lines.splitlines()) == 4
    assert not lines.startswith(first)  # the record's first round, with its own seconds, has taken its place


class Interrupting(Callback):
    def on_round(self, run, record):
        raise KeyboardInterrupt


def test_the_record_of_a_begun_run_is_not_taken_for_a_finished_one(type_in, monkeypatch):
    """One round of two: where the record itself is run, the second is run."""
    some = ("reproduce", "study.toml", "--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1")
    selection = Selection(only=("fedavg",), where={"attack.rate": ("0.25",)}, seeds=1)
    (cell,) = plan(read_study("study.toml"), selection, Path("runs")).open
    with pytest.raises(KeyboardInterrupt):
        execute(cell.experiment, cell.path, executor="serial", callbacks=[Interrupting()])
    with monkeypatch.context() as patch:
        patch.setattr("smartfl.reproduce.run.run_grid", lambda *_, **__: None)
        assert type_in(*some, "--export", "store", "--checkpoints")[0] == 0
    (record,) = Path("store/checkpoints").iterdir()
    assert not (record / "result.json").exists()
    assert type_in(*some, "--out", "store")[0] == 0
    assert len(read_lines(record / "rounds.jsonl")) == 2
    assert json.loads((record / "result.json").read_text())["rounds"] == 2


def test_a_store_below_the_runs_is_no_place_to_run(done):
    """A begun record there is gone on from, in a run directory of its own."""
    some = ("reproduce", "study.toml", "--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--jobs", "1")
    assert done(*some, "--export", "runs/a-store", "--checkpoints")[0] == 0
    assert done(*some, "--export", "runs/a-store", "--checkpoints", "--rounds", "3")[0] == 0
    assert len(list(Path("runs").glob("digits-fedavg-*"))) == 2
    assert not list(Path("runs/a-store").rglob("lock"))


def test_a_broken_run_is_exported_only_with_its_checkpoint(done, monkeypatch):
    """Two rounds of three have a checkpoint: they go into the store to go on from, and count as begun."""
    some = ("--only", "fedavg", "--where", "attack.rate=0.25", "--seeds", "1", "--rounds", "3", "--export", "store")
    monkeypatch.setattr("smartfl.reproduce.run.run_grid", lambda *_, **__: None)  # interrupted before round 3
    assert done("reproduce", "study.toml", *some)[0] == 0
    assert not Path("store").exists()
    assert done("reproduce", "study.toml", *some, "--checkpoints")[0] == 0
    assert [p.name for p in Path("store").iterdir()] == ["checkpoints"]
    assert "@2/3" in done("table", "study.toml", *some[:-2], "--out", "other", "--results", "store")[1]


def test_table_and_figure(done):
    status, out, _ = done("table", "study.toml", "--format", "csv", "--metric", "final")
    assert (status, len(out.splitlines())) == (0, 7)
    assert out.count("not run") == 3  # finetune twice, fedavg at 0.5
    status, out, _ = done("figure", "study.toml", "-o", "drawn")
    assert (status, out) == (0, "drawn/study.png\ndrawn/study.svg\n")
    assert Path("drawn/study.svg").exists()


def test_an_axis_named_twice_keeps_all_its_points(done):
    assert "rate 0.5" not in done("table", "study.toml", "--where", "attack.rate=0.25")[1]
    both = ("--where", "attack.rate=0.25", "--where", "attack.rate=0.5")
    assert done("table", "study.toml", *both) == done("table", "study.toml")


def test_set_changes_every_run(type_in):
    selection = Selection(settings=("data.clients=6",), rounds=1)
    assert {t.experiment.data.clients for t in read_study("table4").trials(selection)} == {6}
    status, out, err = type_in("reproduce", "study.toml", "--set", "attack.rate=0.1")
    assert (status, out) == (2, "")
    assert "attack.rate: it is an axis of study; --where attack.rate=VALUE" in err
    status, out, err = type_in("reproduce", "table1", "--set", "data.dataset=mnist")
    assert (status, out) == (2, "")
    assert "data.dataset: the axis dataset of table1 sets it; --where dataset=LABEL" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["reproduce"], "NAME is missing"),
        (["reproduce", "table9"], "table9"),
        (["reproduce", "demo"], "demo"),
        (["reproduce", "study.toml", "--only", "crum"], "crum"),
        (["reproduce", "study.toml", "--only", ","], "--only"),
        (["reproduce", "study.toml", "--where", "alpha"], "--where"),
        (["reproduce", "study.toml", "--where", "beta=1"], "beta"),
        (["reproduce", "study.toml", "--set", "aggregator.colour=1"], "aggregator.colour"),
        (["reproduce", "study.toml", "--device", "abacus"], "--device"),
        (["reproduce", "study.toml", "--checkpoints"], "--checkpoints needs --export"),
        (["reproduce", "study.toml", "--export", "."], "--export = '.' holds --out = 'runs'"),
        (["reproduce", "study.toml", "--export", "runs"], "--export = 'runs' holds --out = 'runs'"),
        (["reproduce", "study.toml", "--tuned", "absent.toml"], "absent.toml"),
        (["table", "study.toml", "--format", "html"], "--format"),
        (["table", "study.toml", "--metric", "mean"], "--metric"),
        (["table", "study.toml", "--metric", "rounds"], "--metric"),
        (["table", "study.toml", "--set", "rounds"], "--set"),
        (["table", "study.toml", "--results", "reslts"], "--results = 'reslts' does not exist"),
        (["figure", "study.toml"], "nothing of study has been run"),
        (["figure", "study.toml", "--only", "krum", "--where", "attack.rate=0.5"], "nothing of study is left"),
        (["table", "study.toml", "--only", "krum", "--where", "attack.rate=0.5"], "nothing of study is left"),
        (["table", "study.toml", "--only", "krum", "--where", "attack.rate=0.5", "--at", "1"], "nothing of study"),
        (["reproduce", "study.toml", "--only", "krum", "--where", "attack.rate=0.5"], "nothing of study is left"),
        (["tune", "study.toml", "--method", "krum"], "--method"),
    ],
)
def test_a_mistake_is_one_sentence_exit_status_2_and_nothing_written(type_in, arguments, named):
    status, out, err = type_in(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("smartfl: ")
    assert err.count("\n") == 1
    assert named in err
    assert [p.name for p in Path().iterdir()] == ["study.toml"]


def test_runs_that_another_process_holds_are_left_to_it(tmp_path, study, capsys):
    cells = plan(study, Selection(), tmp_path).open
    holder = RunDirectory.open(cells[0].path, cells[0].experiment)
    free, held = _free(cells, patience=0.01, sleep=lambda _: None)
    assert (held, free) == ([cells[0]], cells[1:])
    assert "a run held by another process" in capsys.readouterr().err
    free, held = _free(cells, patience=60, sleep=lambda _: holder.close())
    assert (held, free) == ([], cells)
