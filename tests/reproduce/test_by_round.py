"""Accuracies after some rounds, from records written by hand."""

from __future__ import annotations

import csv

import pytest

from smartfl.errors import UserError
from smartfl.experiment.study import Selection
from smartfl.reproduce.by_round import by_round
from smartfl.reproduce.formats import render
from smartfl.reproduce.plan import plan

SIX = Selection(rounds=6)


@pytest.fixture
def filled(tmp_path, write_run, study):
    """Six rounds, evaluated every second; at rate 0.25 FedAvg has two whole seeds, Finetuning's have 6 and 3 rounds."""
    runs = {(p.trial.method, p.trial.column[0], p.trial.seed): p for p in plan(study, SIX, tmp_path).runs}
    for key, accuracies in {
        ("fedavg", "rate 0.25", 0): [None, 0.2, None, 0.4, None, 0.1],
        ("fedavg", "rate 0.25", 1): [None, 0.4, None, 0.8, None, 0.3],
        ("finetune", "rate 0.25", 0): [None, 0.5, None, 0.6, None, 0.7],
        ("finetune", "rate 0.25", 1): [None, 0.5, None],
        ("finetune", "rate 0.5", 0): [None, 0.9, None],
    }.items():
        write_run(runs[key].experiment, tmp_path, accuracies)
    return plan(study, SIX, tmp_path)


def test_the_last_evaluation_up_to_a_round(filled):
    """FedAvg after 3 rounds has the 20 and 40 of round 2: mean 30, std √(10² + 10²) = 14.14; later ones do not count.

    After round 1 nothing is evaluated; Finetuning's second seed ends at 3, and at rate 0.5 no seed gets to 5.
    """
    table = by_round(filled, [5, 1, 3, 3])
    assert [tuple(point.label for point in column) for column in table.columns] == [
        ("rate 0.25", "1"), ("rate 0.25", "3"), ("rate 0.25", "5"),
        ("rate 0.5", "1"), ("rate 0.5", "3"), ("rate 0.5", "5"),
    ]  # fmt: skip
    assert {row.method: [entry.ours_text() for entry in row.entries] for row in table.rows} == {
        "fedavg": ["–", "30.00 ± 14.14", "60.00 ± 28.28", "not run", "not run", "not run"],
        "krum": ["not run", "not run", "not run", "–", "–", "–"],
        "finetune": ["–", "50.00 ± 0.00", "60.00 [1/2]", "–", "90.00 [1/2]", "–"],
    }
    # A round that is evaluated counts itself: 40 and 80, then 10 and 30.
    assert [e.ours_text() for e in by_round(filled, [4, 6]).rows[0].entries[:2]] == ["60.00 ± 28.28", "20.00 ± 14.14"]


def test_a_block_per_column_of_the_study(filled):
    """Though all six columns would fit side by side; 60 and 60 are both the best after round 5."""
    shown = render(by_round(filled, [3, 5]), "text").splitlines()
    assert shown[1].startswith("ours: test accuracy in % after that round, or the last one before it")
    assert shown[3:14] == [
        "rate 0.25",
        "            round              3               5",
        "FedAvg      ours   30.00 ± 14.14  *60.00 ± 28.28",
        "Krum        ours         not run         not run",
        "Finetuning  ours   *50.00 ± 0.00    *60.00 [1/2]",
        "",
        "rate 0.5",
        "            round            3        5",
        "FedAvg      ours       not run  not run",
        "Krum        ours             –        –",
        "Finetuning  ours   90.00 [1/2]        –",
    ]
    assert shown[15:] == ["[k/n]: k of n seeds have done that round.", "–: not there yet."]


def test_the_other_formats(filled):
    table = by_round(filled, [3, 5])
    assert "| rate 0.25 | round | 3 | 5 |" in render(table, "markdown")
    assert "| rate 0.5 | round | 3 | 5 |" in render(table, "markdown")
    assert render(table, "latex").count("Method & round & 3 & 5 \\\\") == 2
    lines = list(csv.DictReader(render(table, "csv").splitlines()))
    chosen = [line for line in lines if (line["method_key"], line["attack.rate"]) == ("finetune", "rate 0.5")]
    assert [(line["round"], line["mean"], line["seeds"], line["state"]) for line in chosen] == [
        ("3", "90.0", "1", "some seeds"), ("5", "", "0", "in progress"),
    ]  # fmt: skip
    assert {(line["rounds_done"], line["rounds_planned"]) for line in chosen} == {("3", "6")}


@pytest.mark.parametrize("wrong", [0, 7])
def test_rounds_that_no_run_has_are_refused(filled, wrong):
    with pytest.raises(UserError, match=f"--at: round {wrong} is not one of the runs' rounds, 1 to 6"):
        by_round(filled, [3, wrong])


def test_what_a_person_types(type_in):
    status, out, _ = type_in("table", "study.toml", "--at", "2,1")
    assert status == 0
    assert out.count("round        1        2") == 2
    for arguments, message in {
        ("--at", "1,b"): "--at takes ROUND,…, for example 10,50,200, got '1,b'",
        ("--at", "1", "--metric", "final"): "--at shows the test accuracy: leave out --metric",
        ("--at", "3"): "--at: round 3 is not one of the runs' rounds, 1 to 2",
    }.items():
        status, out, err = type_in("table", "study.toml", *arguments)
        assert (status != 0, out) == (True, "")
        assert message in err
