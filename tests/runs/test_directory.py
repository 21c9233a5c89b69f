"""The run directory: taken up, thrown away, refused; and a run that is cut anywhere ends the same."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from filelock import FileLock

from smartfl.errors import RecordsError, UserError
from smartfl.experiment.files import read_experiment
from smartfl.records.lines import read_lines
from smartfl.runs import environment
from smartfl.runs.execute import default_path, execute
from smartfl.simulation import Simulation
from smartfl.tracking.callback import Callback


class Cut(Exception):
    """Stands for a kill right behind a round."""


def run(experiment, path, *, stop=None, **options):
    class Cutting(Callback):
        def on_round(self, run, record):
            if record.round == stop:
                raise Cut

    return execute(experiment, path, executor="serial", callbacks=[Cutting()], **options)


def outcome(path):
    """What two runs of one experiment must have in common, byte for byte."""
    rounds = read_lines(path / "rounds.jsonl")
    for line in rounds:
        del line["seconds"]
    return rounds, (path / "coefficients.jsonl").read_bytes(), (path / "model.safetensors").read_bytes()


@pytest.fixture
def experiment(tiny):
    """Stateful on both sides: SCAFFOLD's controls and FedAvgM's velocity must survive."""
    return tiny(rounds=4, client={"algorithm": "scaffold", "optimizer": "sgd"}, aggregator={"name": "fedavgm"})


@pytest.fixture
def whole(experiment, tmp_path):
    run(experiment, tmp_path / "whole")
    return tmp_path / "whole"


def test_a_finished_run_holds_what_the_design_says(experiment, whole):
    names = {p.name for p in whole.iterdir()}
    assert names >= {"experiment.toml", "environment.json", "rounds.jsonl", "coefficients.jsonl", "checkpoints"}
    assert names >= {"result.json", "model.safetensors"}
    assert not [p for p in whole.rglob("*") if p.name.endswith((".part", ".pkl", ".pt"))]
    lines = read_lines(whole / "rounds.jsonl")
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert lines[0].keys() >= {"round", "accuracy", "loss", "proxy_loss", "malicious_mass", "seconds", "dropped"}
    assert lines[0]["seconds"].keys() == {"train", "aggregate", "evaluate"}
    weights = read_lines(whole / "coefficients.jsonl")
    assert weights[0].keys() == {"round", "ids", "coefficients", "malicious"}
    result = json.loads((whole / "result.json").read_text())
    accuracies = [line["accuracy"] for line in lines]
    assert (result["final"], result["best"]) == (accuracies[-1], max(accuracies))
    assert result["last_ten"] == pytest.approx(sum(accuracies) / 4)
    assert json.loads((whole / "environment.json").read_text())["packages"]["torch"]
    again = read_experiment(whole / "experiment.toml")
    assert again.digest == default_path(experiment, Path("runs")).name.removeprefix("tiny-")


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_cut_behind_a_round_ends_the_same(tiny_tables, experiment, whole, tmp_path, every):
    """With a checkpoint every third round the cut after round 2 starts anew, the one after 4 goes on from 3."""
    rare = experiment.model_copy(update={"checkpoint_every": every})
    path = tmp_path / "cut"
    for stop in (2, 3):
        with pytest.raises(Cut):
            run(rare, path, stop=stop, resume=True)
    run(rare, path, resume=True)
    assert outcome(path) == outcome(whole)


def test_what_smartfl_remembers_of_clients_survives_a_cut(tiny, tmp_path):
    """And it matters here: with the memory wiped at the cut, the weights of the round after it are others."""
    changes = {"rounds": 4, "attack": {"name": "omniscient", "rate": 0.4}}
    remembering = tiny(**changes, aggregator={"name": "smartfl", "server_epochs": 10})
    run(remembering, tmp_path / "whole")
    with pytest.raises(Cut):
        run(remembering, tmp_path / "cut", stop=2)
    run(remembering, tmp_path / "cut", resume=True)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    first, wiped = (Simulation(remembering, executor="serial") for _ in range(2))
    with closing(iter(first)) as rounds:
        for _ in range(2):
            next(rounds)
    first.state.rules = [{}]
    wiped.restore(first.state)
    with closing(iter(wiped)) as rounds:
        after = next(rounds).coefficients_line()
    kept = read_lines(tmp_path / "whole" / "coefficients.jsonl")[2]
    assert (after["round"], after["ids"]) == (3, kept["ids"])
    assert after["coefficients"] != kept["coefficients"]


def test_the_revisions_that_computed_earlier_rounds_stay_on_record(experiment, tmp_path, monkeypatch):
    """Round 1 by a, begun again by b with nothing lost to a, cut, and ended by c, which was cut once more."""
    path = tmp_path / "cut"
    for revision, stop in (("a", 1), ("b", 2), ("c", 3), ("c", None)):
        monkeypatch.setattr("smartfl.runs.environment.revision", lambda revision=revision: revision)
        with pytest.raises(Cut) if stop else nullcontext():
            run(experiment, path, stop=stop, resume=True)
    found = json.loads((path / "environment.json").read_text())
    assert (found["revision"], found["earlier_revisions"]) == ("c", ["a", "b"])
    run(experiment, path, fresh=True)
    assert "earlier_revisions" not in json.loads((path / "environment.json").read_text())


def test_a_repository_around_an_installed_package_is_not_its_revision(tmp_path):
    """As of a project with its own .venv."""
    project = tmp_path / "project"
    package = project / ".venv" / "runs"
    package.mkdir(parents=True)
    shutil.copy(environment.__file__, package / "environment.py")
    (project / "own.txt").write_text("theirs")
    for arguments in (
        ["init", "-q"],
        ["add", "own.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "theirs"],
    ):
        subprocess.run(["git", "-C", str(project), *arguments], check=True)
    code = "import environment; print(environment.revision())"
    found = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"


def test_half_a_line_and_rounds_beyond_the_checkpoint_are_cut_off(experiment, whole, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=2)
    for name in ("rounds.jsonl", "coefficients.jsonl"):
        with (path / name).open("a") as file:
            file.write('{"round": 3, "accuracy": 0.1, "ids": []}\n{"round": 4, "acc')
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)


@pytest.mark.parametrize("every", [1, 3])
def test_records_without_the_checkpoint_that_they_imply_are_kept(experiment, tmp_path, every):
    rare = experiment.model_copy(update={"checkpoint_every": every})
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(rare, path, stop=4)
    before = [(path / name).read_bytes() for name in ("rounds.jsonl", "coefficients.jsonl")]
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(UserError, match=r"records of 4 rounds but no checkpoint, .* after round 3: .* --fresh"):
        run(rare, path, resume=True)
    assert [(path / name).read_bytes() for name in ("rounds.jsonl", "coefficients.jsonl")] == before


def test_checkpoints_that_cannot_be_read_stop_a_resume(experiment, tmp_path, monkeypatch):
    """``glob`` would say that there are none, and the run would begin again."""
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=3)
    before = (path / "rounds.jsonl").read_bytes()
    scan = os.scandir

    def refuse(where="."):
        if str(where).endswith("checkpoints"):
            raise PermissionError(13, "Permission denied")
        return scan(where)

    listdir = os.listdir
    monkeypatch.setattr("os.scandir", refuse)
    monkeypatch.setattr("os.listdir", lambda where=".": refuse(where) and listdir(where))
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        run(experiment, path, resume=True)
    assert (path / "rounds.jsonl").read_bytes() == before


def test_a_restart_is_said(experiment, whole, tmp_path, caplog):
    """Two rounds, and the first checkpoint would have come after the third."""
    rare = experiment.model_copy(update={"checkpoint_every": 3})
    with pytest.raises(Cut):
        run(rare, tmp_path / "cut", stop=2)
    assert caplog.text == ""
    run(rare, tmp_path / "cut", resume=True)
    assert "had no checkpoint after 2 rounds: it starts again" in caplog.text
    assert outcome(tmp_path / "cut") == outcome(whole)


def test_a_gap_in_the_records_is_found(experiment, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=4)
    file = path / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(UserError, match="whole up to round 1"):
        run(experiment, path, resume=True)
    assert file.read_text() == "".join(lines[:1] + lines[2:])


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"[" * 100_000, b"7", b'{"round": 7}'])
def test_a_damaged_last_line_is_made_again(experiment, whole, tmp_path, damage):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=3)
    file = path / "coefficients.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]) + damage + b"\n")
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)


def test_records_that_something_else_changed_during_the_run_are_no_result(experiment, whole, tmp_path):
    """A line that is gone at the end is told of; what follows the last line is cut off."""

    def spoil(change):
        class Change(Callback):
            def on_round(self, run, record):
                if record.round == 4:
                    change(tmp_path / "run" / "rounds.jsonl")

        return execute(experiment, tmp_path / "run", executor="serial", callbacks=[Change()], fresh=True)

    with pytest.raises(RecordsError, match=r"rounds\.jsonl' is whole up to round 1 of 4 only"):
        spoil(lambda file: file.write_text("".join(file.read_text().splitlines(keepends=True)[:1])))
    assert not (tmp_path / "run" / "result.json").exists()
    spoil(lambda file: file.open("a").write("from elsewhere"))
    assert outcome(tmp_path / "run") == outcome(whole)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes().count(b"\n") == 4


def test_a_result_that_cannot_be_read_is_made_again(experiment, whole):
    before = (whole / "result.json").read_bytes()
    for damage in (b"", b"\xff", b"[1]", b'{"final": 1.0, "unknown": 2}', b"[" * 100_000):
        (whole / "result.json").write_bytes(damage)
        run(experiment, whole, resume=True)
        assert (whole / "result.json").read_bytes() == before


@pytest.mark.parametrize("lost", ["rounds.jsonl", "coefficients.jsonl"])
def test_a_line_that_the_disk_lost_is_made_again(experiment, whole, tmp_path, lost):
    """A checkpoint that is ahead of the records does not count."""
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=3)
    file = path / lost
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)


def test_a_damaged_newest_checkpoint_costs_one_round(experiment, whole, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=3)
    newest = sorted((path / "checkpoints").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)


def test_a_run_without_a_whole_checkpoint_is_not_thrown_away_silently(experiment, whole, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=3)
    before = (path / "rounds.jsonl").read_text()
    for file in (path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"none of the 2 checkpoints .* --fresh"):
        run(experiment, path, resume=True)
    assert (path / "rounds.jsonl").read_text() == before
    run(experiment, path, fresh=True)
    assert outcome(path) == outcome(whole)


def test_a_cut_between_the_last_round_and_the_result(experiment, whole, tmp_path):
    path = tmp_path / "cut"
    shutil.copytree(whole, path)
    for name in ("result.json", "model.safetensors"):
        (path / name).unlink()
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)
    assert (path / "result.json").read_bytes() == (whole / "result.json").read_bytes()


def test_a_finished_run_is_not_run_again(experiment, whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file() and p.name != "lock"}
    result = run(experiment, whole, resume=True, stop=1)
    assert result.rounds == 4
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file() and p.name != "lock"} == before


def test_a_second_run_needs_resume_or_fresh(experiment, whole):
    with pytest.raises(UserError, match="holds a run already: pass --resume, --fresh or another --out"):
        run(experiment, whole)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rounds": 5}, "rounds = 4 there, 5 here"),
        ({"client": {"algorithm": "scaffold", "optimizer": "sgd", "lr": 0.5}}, r"client\.lr = 0\.01 there, 0\.5 here"),
        ({"aggregator": {"name": "median"}}, r"aggregator\."),
    ],
)
def test_resuming_another_experiment_names_the_setting_and_loses_nothing(tiny, experiment, whole, change, named):
    base = {"rounds": 4, "client": {"algorithm": "scaffold", "optimizer": "sgd"}, "aggregator": {"name": "fedavgm"}}
    before = outcome(whole)
    with pytest.raises(UserError, match=named):
        run(tiny(**(base | change)), whole, resume=True)
    assert outcome(whole) == before


def test_the_name_and_the_checkpoints_do_not_make_another_experiment(experiment, whole):
    renamed = experiment.model_copy(update={"name": "other", "checkpoint_every": 2})
    assert run(renamed, whole, resume=True).rounds == 4


def test_fresh_throws_the_old_run_away(tiny, experiment, whole):
    run(tiny(rounds=1), whole, fresh=True)
    assert len(read_lines(whole / "rounds.jsonl")) == 1
    assert read_experiment(whole / "experiment.toml").rounds == 1
    assert json.loads((whole / "result.json").read_text())["rounds"] == 1


def test_fresh_on_nothing_and_resume_on_nothing_start(tiny, tmp_path):
    run(tiny(rounds=1), tmp_path / "a", fresh=True)
    run(tiny(rounds=1), tmp_path / "b", resume=True)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def hold(path: str, ready, stop) -> None:
    with FileLock(path):
        ready.set()
        stop.wait(30)


def test_a_run_in_use_by_another_process_is_refused(experiment, whole):
    context = multiprocessing.get_context("fork")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=hold, args=(str(whole / "lock"), ready, stop))
    process.start()
    try:
        assert ready.wait(30)
        for options in ({"resume": True}, {"fresh": True}):
            with pytest.raises(UserError, match="in use by another process"):
                run(experiment, whole, **options)
        assert (whole / "result.json").exists()
    finally:
        stop.set()
        process.join()
    assert run(experiment, whole, resume=True).rounds == 4


def test_the_lock_is_given_back_after_a_failure(experiment, tmp_path):
    for _ in range(2):
        with pytest.raises(Cut):
            run(experiment, tmp_path / "cut", stop=1, fresh=True)


def test_directories_that_are_not_ours_are_left_alone(tiny, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for options in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(UserError, match="holds other files and is no run of ours"):
            run(tiny(), tmp_path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_users_own_experiment_does_not_make_a_directory_a_run(tiny, tmp_path):
    """README's file is called experiment.toml too, and beside it may lie checkpoints of another program."""
    (tmp_path / "experiment.toml").write_text("rounds = 2  # my thesis\n")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "weights.bin").write_text("weeks of work")
    for options in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(UserError, match="holds other files and is no run of ours"):
            run(tiny(), tmp_path, **options)
    assert (tmp_path / "experiment.toml").read_text() == "rounds = 2  # my thesis\n"
    assert (tmp_path / "checkpoints" / "weights.bin").exists()


@pytest.mark.parametrize("disguise", ["lock", "experiment.toml", ".smartfl-run", "environment.json"])
def test_a_file_of_our_names_does_not_make_a_directory_ours(tiny, tmp_path, disguise):
    (tmp_path / disguise).write_text("rounds = 2")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "weights.bin").write_text("weeks of work")
    (tmp_path / "result.json").write_text("{}")
    for options in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(UserError, match="holds other files and is no run of ours"):
            run(tiny(), tmp_path, **options)
    assert len(list(tmp_path.rglob("*"))) == 4


def test_a_run_from_before_there_was_a_marker_goes_on(experiment, whole, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(Cut):
        run(experiment, path, stop=2)
    (path / ".smartfl-run").unlink()
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)
    assert (path / ".smartfl-run").exists()


def test_fresh_leaves_what_is_not_ours(tiny, whole):
    (whole / "notes.txt").write_text("mine")
    (whole / "checkpoints" / "weights.bin").write_text("weeks of work")
    run(tiny(rounds=1), whole, fresh=True)
    assert (whole / "notes.txt").exists()
    assert (whole / "checkpoints" / "weights.bin").exists()
    assert sorted(p.name for p in (whole / "checkpoints").glob("round-*.json")) == ["round-000001.json"]


@pytest.mark.parametrize("moment", range(1, 16))
def test_a_kill_while_fresh_removes_a_run_leaves_nothing_of_it(experiment, whole, tmp_path, monkeypatch, moment):
    """Whatever was removed by then, the next --resume runs the experiment from the start."""
    calls = iter(range(1, 100))
    unlink = Path.unlink

    def killed(self, missing_ok=False):
        if next(calls) == moment:
            raise Cut
        unlink(self, missing_ok)

    path = tmp_path / "again"
    shutil.copytree(whole, path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(Cut):
            run(experiment, path, fresh=True)
    run(experiment, path, resume=True)
    assert outcome(path) == outcome(whole)
    if moment > 7:  # the first seven remove what earlier kills left half-written
        before, after = ((p / "environment.json").stat().st_mtime_ns for p in (whole, path))
        assert after > before


def test_a_directory_that_cannot_be_written_is_one_sentence(tiny, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError, match="is a file"):
        run(tiny(), file)
    with pytest.raises(UserError, match="cannot be written"):
        run(tiny(), file / "below")
    with pytest.raises(UserError, match="cannot be written"):
        run(tiny(), Path("/proc/smartfl-run"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_one_sentence(tiny, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        run(tiny(), tmp_path / "run")


def test_a_mistake_leaves_no_directory(tiny, tmp_path):
    with pytest.raises(UserError, match=r"data\.clients"):
        run(tiny(data={"clients": 5000}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_records_are_valid_json_even_when_a_model_diverges(tiny, tmp_path):
    """A loss that is infinite or NaN is null: NaN is no JSON, and other programs read these files."""
    client = {"optimizer": "sgd", "lr": 3e38, "batch_size": 999}  # one step to finite weights of about 1e37
    wild = tiny(rounds=2, client=client, model={"name": "logistic"}, evaluate_every=2)
    run(wild, tmp_path / "wild")

    def refuse(token):
        raise AssertionError(token)

    text = (tmp_path / "wild" / "rounds.jsonl").read_text()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [line["loss"] for line in lines] == [None, None]
    assert lines[0]["accuracy"] is None
    assert lines[1]["accuracy"] is not None


def test_a_run_in_which_every_client_is_refused_says_so(smartfl, tiny_tables):
    """On the terminal, once, and in its result, where a run with valid clients has no word of warnings."""
    client = {"optimizer": "sgd", "lr": 3e38, "epochs": 2}  # every client diverges
    file = smartfl.write(tiny_tables(client=client, rounds=3))
    done = smartfl("run", file, "--out", "run", "--executor", "serial")
    assert done.returncode == 0
    said = "every client was refused in every round: the model is the one that the run began with"
    assert done.stderr.splitlines() == [
        "round 1: every client of the round was refused: the global model is kept (rounds.jsonl has the reasons)",
        f"the run in 'run': {said}",
    ]
    assert json.loads((smartfl.directory / "run" / "result.json").read_text())["warnings"] == [said]
    again = smartfl("run", file, "--out", "run", "--executor", "serial", "--resume")
    assert again.stdout == done.stdout
    smartfl("run", smartfl.write(tiny_tables(rounds=1), "good.toml"), "--out", "good", "--executor", "serial")
    assert "warnings" not in json.loads((smartfl.directory / "good" / "result.json").read_text())
