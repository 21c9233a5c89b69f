"""Candidates, the choice among them, and the file that keeps it."""

from __future__ import annotations

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection
from smartfl.reproduce.plan import plan
from smartfl.reproduce.tuning import GRIDS, candidates, choose, read_choices, record


def test_the_papers_grids():
    study = read_study("table1")
    for method in ("feddf", "fedbe", "finetune"):
        grid = candidates(study, method, seed=100)
        settings = {
            (t.experiment.aggregator.settings["lr"], t.experiment.aggregator.settings["server_epochs"])
            for t in grid.trials()
        }
        assert settings == {(lr, e) for lr in (5e-5, 5e-4, 1e-3, 1e-2) for e in (1, 5, 10, 20)}
        assert {t.experiment.aggregator.name for t in grid.trials()} == {method}
        assert {t.experiment.seed for t in grid.trials()} == {100}
    proximal = candidates(study, "fedprox", seed=7).trials(Selection(where={"data.alpha": ("0.01",)}))
    assert {t.experiment.client.settings["mu"] for t in proximal} == {0.001, 0.01, 0.1, 0.5, 1.0}
    assert len(proximal) == 5 * 2 * 2  # two datasets, two participations
    with pytest.raises(UserError, match="--method: 'smartfl' is unknown; accepted: fedprox, feddf, fedbe, finetune"):
        candidates(study, "smartfl", seed=0)


def test_the_best_mean_over_the_columns_wins_and_is_applied(tmp_path, write_run, study):
    """Candidate k has 0.01 · k at rate 0.25 and 0.5 − 0.03 · |k − 5| at 0.5.

    The mean is (0.01 k + 0.5 − 0.03 |k − 5|)/2, largest at k = 5: (0.05 + 0.5)/2 = 0.275.  Candidate 5 is the second
    learning rate with the second number of epochs.
    """
    grid = candidates(study, "finetune", seed=100)
    for planned in plan(grid, Selection(), tmp_path).runs:
        k = int(planned.trial.method[-2:])
        accuracy = 0.01 * k if planned.trial.column == ("rate 0.25",) else 0.5 - 0.03 * abs(k - 5)
        write_run(planned.experiment, tmp_path, [0.0, 2 * accuracy])
    choice = choose(plan(grid, Selection(), tmp_path), study, "finetune", {})
    assert choice.settings == {"aggregator": {"lr": 5e-4, "server_epochs": 5}}
    assert choice.accuracy == pytest.approx(0.275)
    assert (choice.budget.rounds, choice.budget.seed, choice.budget.columns, choice.budget.candidates) == (
        2,
        100,
        2,
        16,
    )
    file = tmp_path / "tuned.toml"
    record(choice, file)
    record(choice.model_copy(update={"where": {"attack.rate": ("0.5",)}, "accuracy": 0.1}), file)
    record(choice, file)
    kept = read_choices(file)
    assert [c.where for c in kept] == [{"attack.rate": ("0.5",)}, {}]
    assert kept[1] == choice
    selection = Selection(tuned=tuple((c.method, c.where, c.settings) for c in kept))
    tuned = [t.experiment.aggregator.settings for t in study.trials(selection) if t.method == "finetune"]
    assert tuned == [{"lr": 5e-4, "server_epochs": 5}] * 4


def test_no_choice_before_all_candidates_are_done(tmp_path, write_run, study):
    grid = candidates(study, "finetune", seed=1)
    write_run(plan(grid, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2])
    with pytest.raises(UserError, match="only 0 of 16 candidates are finished"):
        choose(plan(grid, Selection(), tmp_path), study, "finetune", {})


def test_a_method_that_does_not_apply_somewhere_is_not_tuned_there(study, monkeypatch):
    monkeypatch.setitem(GRIDS, "krum", {"aggregator.f": (0, 1)})
    assert {t.column for t in candidates(study, "krum", seed=0).trials()} == {("rate 0.25",)}


def test_files_of_choices(tmp_path):
    assert isinstance(read_choices(None), tuple)  # what ships with the package can be read
    for text, said in (("[", "not valid TOML"), ("[[choice]]\nstudy = 'x'\n", "is required"), ("a = 1", "a is not")):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(UserError, match=said):
            read_choices(tmp_path / "bad.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_choices(tmp_path / "absent.toml")
