"""Candidates, the choice among them, and the file that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection, Study
from smartfl.reproduce.plan import plan
from smartfl.reproduce.tuning import GRIDS, candidates, choose, read_choices, record, with_choices


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
    assert choice.budget.model_dump() == {"rounds": 2, "seed": 100, "columns": 2, "candidates": 16}
    half = Selection(where={"attack.rate": ("0.5",)})
    part = choose(plan(grid, half, tmp_path), study, "finetune", half.where)
    assert part.accuracy == pytest.approx(0.5)
    file = tmp_path / "tuned.toml"
    for each in (choice, part, choice):
        record(each, file)
    kept = read_choices(file)
    assert kept == (part, choice)
    tuned = [t for t in study.trials(with_choices(Selection(), study, kept)) if t.method == "finetune"]
    assert [t.experiment.aggregator.settings for t in tuned] == [{"lr": 5e-4, "server_epochs": 5}] * 4


def test_every_candidate_is_kept(tmp_path, write_run, study):
    """Candidate k has accuracy 0.01 · k in both columns; 4 has the second learning rate, the first number of epochs."""
    grid = candidates(study, "finetune", seed=100)
    for planned in plan(grid, Selection(), tmp_path).runs:
        write_run(planned.experiment, tmp_path, [0.01 * int(planned.trial.method[-2:])] * 2)
    record(choose(plan(grid, Selection(), tmp_path), study, "finetune", {}), tmp_path / "tuned.toml")
    (choice,) = read_choices(tmp_path / "tuned.toml")
    assert [c["accuracy"] for c in choice.candidates] == pytest.approx([0.01 * k for k in range(16)])
    assert [choice.candidates[k]["aggregator.lr"] for k in (0, 3, 4, 15)] == [5e-5, 5e-5, 5e-4, 1e-2]
    assert [choice.candidates[k]["aggregator.server_epochs"] for k in (0, 3, 4, 15)] == [1, 20, 1, 20]
    assert [cell["attack.rate"] for cell in choice.cells] == [0.25, 0.5]
    assert "attack.rate" not in choice.common
    assert "aggregator.lr" not in choice.common  # chosen, so no part of the cell


def test_candidates_are_scored_on_their_last_ten_rounds(tmp_path, write_run, study_tables):
    """The study evaluates every fifth round.  Candidate 0 has 0.9 in rounds 1 … 10 and 0.3 after, 3 has 0 and then 0.4.

    Rounds 11 … 20 are wanted: 0.4 wins.  Rounds 5, 10, 15 and 20 would say 0.6 and 0.2.
    """
    rare = Study.of({"name": "rare", **study_tables, "base": {**study_tables["base"], "evaluate_every": 5}})
    grid = candidates(rare, "finetune", seed=100)
    selection = Selection(rounds=20)
    curves = {"finetune-00": [0.9] * 10 + [0.3] * 10, "finetune-03": [0.0] * 10 + [0.4] * 10}
    for planned in plan(grid, selection, tmp_path).runs:
        curve = curves.get(planned.trial.method, [0.1] * 20)
        every = planned.experiment.evaluate_every
        write_run(planned.experiment, tmp_path, [None if t % every else a for t, a in enumerate(curve, 1)])
    choice = choose(plan(grid, selection, tmp_path), rare, "finetune", {})
    assert choice.accuracy == pytest.approx(0.4)
    assert choice.settings == {"aggregator": {"lr": 5e-5, "server_epochs": 20}}


def test_candidates_differ_from_the_study_in_what_is_tuned_the_seed_and_the_evaluations():
    """Table 4 is evaluated every round as it is, Table 1 every fifth."""
    for name, every in (("table4", 1), ("table1", 5)):
        preset = read_study(name)
        assert {t.experiment.evaluate_every for t in preset.trials(Selection(seeds=1))} == {every}
        own = {t.column: t.experiment for t in preset.trials(Selection(only=("finetune",), seeds=1))}
        for trial in candidates(preset, "finetune", seed=100).trials():
            expected = own[trial.column].tables() | {"name": trial.experiment.name, "seed": 100, "evaluate_every": 1}
            expected["aggregator"] |= trial.experiment.aggregator.settings
            assert trial.experiment.tables() == expected
            assert trial.experiment.aggregator.settings.keys() == {"lr", "server_epochs"}


@pytest.fixture
def headline(tmp_path, write_run):
    """Finetuning tuned on one cell of Table 1: CIFAR-10, alpha 0.01, participation 0.4; the first candidate wins."""
    where = {"dataset": ("CIFAR-10",), "data.alpha": ("0.01",), "client.participation": ("0.4",)}
    preset, selection = read_study("table1"), Selection(where=where, rounds=1)
    grid = candidates(preset, "finetune", seed=100)
    for planned in plan(grid, selection, tmp_path / "runs").runs:
        write_run(planned.experiment, tmp_path / "runs", [0.5])
    record(choose(plan(grid, selection, tmp_path / "runs"), preset, "finetune", where), tmp_path / "tuned.toml")
    return read_choices(tmp_path / "tuned.toml")


@pytest.mark.parametrize(
    ("name", "settings", "columns"),
    [
        ("table1", (), {("CIFAR-10", "alpha 0.01", "participation 0.4")}),
        ("table1", ("seed=3", "evaluate_every=1"), {("CIFAR-10", "alpha 0.01", "participation 0.4")}),
        ("table1", ("data.partition=feddf",), set()),
        ("table1", ("data.options.colour=1",), set()),
        ("table1", ("aggregator.batch_size=64",), set()),
        ("table1", ("aggregator.batch_size=32",), {("CIFAR-10", "alpha 0.01", "participation 0.4")}),  # the default
        ("table3", (), {("alpha 0.01: 0.35",)}),
        ("figure1", (), {("CIFAR-10", "size 128")}),
        ("figure2", (), {("alpha 0.01", "imbalance 1")}),
        ("figure3", (), {()}),
        ("figure4", (), set()),  # attacked
        ("table4", (), set()),
    ],
)
def test_a_choice_applies_to_the_cell_it_was_tuned_on_in_every_study(headline, name, settings, columns):
    """Where it applies Finetuning has the first candidate, 5e-5, elsewhere the preset's 1e-3."""
    preset = read_study(name)
    selection = with_choices(Selection(seeds=1, settings=settings), preset, headline)
    rates = {
        t.column: t.experiment.aggregator.settings["lr"] for t in preset.trials(selection) if t.method == "finetune"
    }
    assert {column for column, lr in rates.items() if lr == 5e-5} == columns
    assert {lr for column, lr in rates.items() if column not in columns} <= {1e-3}
    others = [t for t in preset.trials(selection) if t.method != "finetune"]
    plain = [t for t in preset.trials(Selection(seeds=1, settings=settings)) if t.method != "finetune"]
    assert others == plain


def test_choices_for_methods_that_are_not_asked_for_are_left_alone(headline):
    """Finetuning has no mistrust: its cells cannot be made with this --set, and need not be."""
    selection = Selection(only=("smartfl",), settings=("aggregator.mistrust=0.25",))
    assert with_choices(selection, read_study("table1"), headline) == selection


def test_tuning_the_same_cell_in_another_study_replaces_the_choice(tmp_path, write_run, headline):
    """Figure 3 is that one cell."""
    preset, selection = read_study("figure3"), Selection(rounds=1)
    grid = candidates(preset, "finetune", seed=100)
    found = plan(grid, selection, tmp_path / "runs")
    assert all(planned.finished for planned in found.runs)  # the candidates are the same runs
    record(choose(found, preset, "finetune", {}), tmp_path / "tuned.toml")
    assert [c.study for c in read_choices(tmp_path / "tuned.toml")] == ["figure3"]


def test_what_ships_can_be_traced():
    """The winner is the best of its candidates; the rows of unit length of Table 4 are tuned, the others are not."""
    shipped = read_choices(None)
    for choice in shipped:
        assert len(choice.candidates) == choice.budget.candidates == 16
        best = max(choice.candidates, key=lambda candidate: candidate["accuracy"])
        assert choice.accuracy == best["accuracy"]
        assert choice.settings["aggregator"] == {k: best[f"aggregator.{k}"] for k in ("lr", "server_epochs")}
    preset = read_study("table4")
    selection = with_choices(Selection(seeds=1), preset, shipped)
    tuned = {
        (t.method, t.column[0]): t.experiment.aggregator.settings
        for t in preset.trials(selection)
        if t.method in ("feddf", "finetune")
    }
    assert tuned == {
        ("feddf", "unit length"): {"lr": 5e-4, "server_epochs": 5},
        ("feddf", "not normalised"): {"lr": 1e-3, "server_epochs": 20},
        ("finetune", "unit length"): {"lr": 1e-2, "server_epochs": 20},
        ("finetune", "not normalised"): {"lr": 1e-3, "server_epochs": 1},
    }
    assert len(selection.tuned) == 2 * 3


def test_what_tune_prints_and_exports(type_in, write_run):
    """All candidates are there: nothing is run, 16 × 2 records are copied, and they are enough from then on."""
    grid = candidates(read_study("study.toml"), "finetune", seed=100)
    for planned in plan(grid, Selection(), Path("runs/tune")).runs:
        write_run(planned.experiment, Path("runs/tune"), [0.25, 0.75] if "-03" in planned.trial.method else [0.5, 0.25])
    arguments = ("tune", "study.toml", "--method", "finetune", "--rounds", "2", "--export", "store")
    status, out, err = type_in(*arguments, "--record", "my tuned.toml")
    assert status == 0
    assert out.splitlines()[-3:] == [
        "chosen: {'aggregator': {'lr': 5e-05, 'server_epochs': 20}}, accuracy 0.5000",
        "my tuned.toml",
        "use it: smartfl reproduce study.toml --tuned 'my tuned.toml'",
    ]
    assert len(err.splitlines()) == 32
    assert all(line.startswith("exported: digits-finetune-") for line in err.splitlines())
    assert not list(Path("store").rglob("coefficients.jsonl"))
    status, again, err = type_in(*arguments, "--record", "second.toml", "--out", "other")
    assert (status, err) == (0, "")
    assert again.replace("second.toml", "'my tuned.toml'").splitlines()[-1] == out.splitlines()[-1]
    assert not Path("other").exists()
    assert read_choices(Path("second.toml")) == read_choices(Path("my tuned.toml"))


@pytest.mark.parametrize("setting", ["aggregator.lr=1", "evaluate_every=5", "rounds=2", "seed=3"])
def test_what_is_tuned_cannot_be_set(type_in, setting):
    status, out, err = type_in("tune", "study.toml", "--method", "finetune", "--set", setting)
    assert (status, out) == (2, "")
    assert f"--set {setting.partition('=')[0]}: it is" in err
    assert [p.name for p in Path().iterdir()] == ["study.toml"]


def test_a_file_that_no_choice_can_be_added_to_is_found_before_the_runs(type_in):
    Path("bad.toml").write_text("[")
    status, out, err = type_in("tune", "study.toml", "--method", "finetune", "--record", "bad.toml")
    assert (status, out) == (2, "")
    assert "--record = 'bad.toml' is not valid TOML" in err
    assert sorted(p.name for p in Path().iterdir()) == ["bad.toml", "study.toml"]


def test_no_choice_before_all_candidates_are_done(tmp_path, write_run, study):
    grid = candidates(study, "finetune", seed=1)
    write_run(plan(grid, Selection(), tmp_path).runs[0].experiment, tmp_path, [0.1, 0.2])
    with pytest.raises(UserError, match="only 0 of 16 candidates are finished"):
        choose(plan(grid, Selection(), tmp_path), study, "finetune", {})


def test_a_method_that_does_not_apply_somewhere_is_not_tuned_there(study, monkeypatch):
    monkeypatch.setitem(GRIDS, "krum", {"aggregator.f": (0, 1)})
    assert {t.column for t in candidates(study, "krum", seed=0).trials()} == {("rate 0.25",)}


def test_files_of_choices(tmp_path):
    for text, said in (("[", "not valid TOML"), ("[[choice]]\nstudy = 'x'\n", "is required"), ("a = 1", "a is not")):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(UserError, match=said):
            read_choices(tmp_path / "bad.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_choices(tmp_path / "absent.toml")
