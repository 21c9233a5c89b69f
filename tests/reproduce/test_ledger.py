"""What counts as done."""

from __future__ import annotations

from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.experiment.study import Selection
from smartfl.records.store import find_runs
from smartfl.reproduce.ledger import Ledger
from smartfl.reproduce.plan import in_use, plan
from smartfl.runs.directory import RunDirectory


def experiment(**changes) -> Experiment:
    return Resolved.complete(Experiment.of({"rounds": 4, "aggregator": {"name": "fedavg"}, **changes}))


def test_a_run_is_found_by_its_settings_and_not_by_its_name(tmp_path, write_run):
    path = write_run(experiment(name="one"), tmp_path, [0.1, 0.2, 0.3, 0.4])
    ledger = Ledger([tmp_path])
    found = ledger.find(experiment(name="other"))
    assert found is not None
    assert (found.done, found.finished, found.run.best) == (4, True, 0.4)
    assert ledger.home(experiment(name="other"), tmp_path) == path.resolve()
    assert ledger.home(experiment(), tmp_path / "elsewhere") is None
    assert ledger.find(experiment(seed=1)) is None
    assert ledger.find(experiment(aggregator={"name": "uniform"})) is None


def test_a_longer_run_answers_for_its_beginning(tmp_path, write_run):
    """Rounds do not depend on how many are planned: three of 0.1 0.9 0.3 0.4 are those of a shorter run."""
    weights = [{"round": t, "ids": [0], "coefficients": [1.0], "malicious": []} for t in (1, 2, 3, 4)]
    write_run(experiment(), tmp_path, [0.1, 0.9, 0.3, 0.4], weights)
    found = Ledger([tmp_path]).find(experiment(rounds=3))
    assert found is not None
    assert found.finished
    assert (found.run.final, found.run.best, len(found.run.cohorts)) == (0.3, 0.9, 3)
    assert found.run.planned_rounds == 3
    longer = Ledger([tmp_path]).find(experiment(rounds=9))
    assert longer is not None
    assert (longer.done, longer.finished) == (4, False)


def test_a_longer_run_that_was_not_evaluated_at_the_end_does_not_answer(tmp_path, write_run):
    """Every second round is evaluated and the last in any case: round 3 of 4 is not, round 3 of 3 would be."""
    write_run(experiment(evaluate_every=2), tmp_path, [None, 0.2, None, 0.4])
    ledger = Ledger([tmp_path])
    assert ledger.find(experiment(evaluate_every=2, rounds=3)) is None
    assert ledger.find(experiment(evaluate_every=2, rounds=2)) is not None


def test_a_record_from_before_a_setting_existed_says_nothing(tmp_path, write_run):
    new = experiment(aggregator={"name": "smartfl"})
    path = write_run(new, tmp_path, [0.1] * 4)
    file = path / "experiment.toml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("penalty")))
    assert Ledger([tmp_path]).find(new) is None


def test_directories_that_are_no_runs_of_ours_are_passed_over(tmp_path, write_run):
    write_run(experiment(), tmp_path / "deep" / "down", [0.5] * 4)
    for name, text in (("bad", "not toml ["), ("old", "rouns = 1\n"), ("binary", "\0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.toml").write_text(text)
        (tmp_path / name / "rounds.jsonl").touch()
    (tmp_path / "experiment.toml").write_text("rounds = 2\n")  # a user's own, beside which the runs are
    assert len(list(find_runs([tmp_path]))) == 4
    assert Ledger([tmp_path, tmp_path / "absent"]).find(experiment()) is not None


def test_a_plan_knows_what_is_open(tmp_path, write_run, study):
    first = plan(study, Selection(), tmp_path)
    assert len(first.runs) == 10  # (3 + 2 methods) × 2 seeds
    assert len(first.open) == 10
    write_run(first.runs[0].experiment, tmp_path, [0.5, 0.6])
    write_run(first.runs[1].experiment, tmp_path / "stored", [0.5, 0.6])
    write_run(first.runs[2].experiment, tmp_path, [0.5])
    second = plan(study, Selection(), tmp_path, [tmp_path / "stored"])
    assert [p.finished for p in second.runs] == [True, True] + [False] * 8
    assert [cell.path.name for cell in second.open] == [p.path.name for p in first.runs[2:]]


def test_a_run_begun_under_another_name_is_gone_on_with_where_it_is(tmp_path, write_run, study):
    wanted = plan(study, Selection(), tmp_path).runs[0].experiment
    begun = write_run(wanted.model_copy(update={"name": "mine"}), tmp_path, [0.5])
    assert plan(study, Selection(), tmp_path).runs[0].path == begun.resolve()


def test_in_use(tmp_path):
    assert not in_use(tmp_path / "absent")
    (tmp_path / "record").mkdir()
    assert not in_use(tmp_path / "record")
    assert not list((tmp_path / "record").iterdir())  # a committed record is only looked at
    run = RunDirectory.open(tmp_path / "run", experiment())
    assert in_use(tmp_path / "run")
    run.close()
    assert not in_use(tmp_path / "run")


def test_what_a_run_can_go_on_from(tmp_path, write_run):
    """Checkpoints, fewer rounds, and no evaluation that it would not make itself."""

    def with_checkpoint(run):
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "round-000002.json").write_text("{}")
        return run.resolve()

    write_run(experiment(), tmp_path, [0.1] * 4)
    assert Ledger([tmp_path]).beginning(experiment(rounds=9)) is None
    short = with_checkpoint(write_run(experiment(rounds=3), tmp_path, [0.1] * 3))
    assert Ledger([tmp_path]).beginning(experiment(rounds=9)) == short
    assert Ledger([tmp_path]).beginning(experiment(rounds=3)) is None
    broken = with_checkpoint(write_run(experiment(rounds=20), tmp_path, [0.1] * 5))  # planned longer and broken off
    assert Ledger([tmp_path]).beginning(experiment(rounds=9)) == broken
    assert Ledger([tmp_path]).beginning(experiment(rounds=5)) == short  # the longer one answers for it
    assert Ledger([tmp_path / "elsewhere"]).beginning(experiment(rounds=9)) is None
    odd = with_checkpoint(write_run(experiment(rounds=3, evaluate_every=2), tmp_path, [None, 0.1, 0.1]))
    assert Ledger([tmp_path]).beginning(experiment(rounds=9, evaluate_every=2)) is None
    (odd / "rounds.jsonl").write_text("".join((odd / "rounds.jsonl").read_text().splitlines(True)[:2]))
    assert Ledger([tmp_path]).beginning(experiment(rounds=9, evaluate_every=2)) == odd
