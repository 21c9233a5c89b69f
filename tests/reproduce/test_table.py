"""The arithmetic of tables, by hand, and their four formats."""

from __future__ import annotations

import csv

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection, Study
from smartfl.report.run_data import RunData
from smartfl.reproduce.formats import render
from smartfl.reproduce.metrics import first_round, score
from smartfl.reproduce.plan import plan
from smartfl.reproduce.table import compare


@pytest.fixture
def filled(tmp_path, write_run, study):
    """FedAvg at rate 0.25: two seeds with (0.2, 0.4) and (0.4, 0.8); Finetuning: one seed; at 0.5 one round of two."""
    runs = {(p.trial.method, p.trial.column[0], p.trial.seed): p for p in plan(study, Selection(), tmp_path).runs}
    for key, accuracies in {
        ("fedavg", "rate 0.25", 0): [0.2, 0.4],
        ("fedavg", "rate 0.25", 1): [0.4, 0.8],
        ("finetune", "rate 0.25", 0): [0.1, 0.3],
        ("finetune", "rate 0.5", 0): [0.9],
        ("fedavg", "rate 0.5", 0): [0.1, 0.7],
    }.items():
        write_run(runs[key].experiment, tmp_path, accuracies)
    return plan(study, Selection(), tmp_path)


def texts(table):
    return {(row.method, k): e.ours_text() for row in table.rows for k, e in enumerate(row.entries)}


def test_mean_and_sample_deviation_over_seeds(filled):
    """Converged: means 0.3 and 0.6 of the last (at most ten) rounds; mean 45, std √((15² + 15²)/1) = 21.2132."""
    found = texts(compare(filled))
    assert found["fedavg", 0] == "45.00 ± 21.21"
    assert found["finetune", 0] == "20.00 [1/2]"
    assert found["fedavg", 1] == "40.00 [1/2]"
    assert found["finetune", 1] == "90.00 @1/2"
    assert found["krum", 0] == "not run"
    assert found["krum", 1] == "–"


def test_other_metrics(filled):
    """Maximum: 40 and 80; final: the same here."""
    assert texts(compare(filled, "maximum"))["fedavg", 0] == "60.00 ± 28.28"
    assert texts(compare(filled, "final"))["finetune", 0] == "30.00 [1/2]"
    assert texts(compare(filled, "mass"))["fedavg", 0] == "25.00 ± 0.00"


def test_less_weight_on_attackers_is_better(filled):
    """All records say 25 %, so every row that is finished shares the win; no paper number stands beside it."""
    table = compare(filled, "mass")
    assert [table.wins(row, 0, "ours") for row in table.rows] == [True, False, True]
    assert all(e.paper is None for row in table.rows for e in row.entries)


def test_the_winner_is_the_best_of_what_is_finished(filled):
    table = compare(filled)
    fedavg, krum, finetune = table.rows
    assert table.wins(fedavg, 0, "ours")
    assert not table.wins(finetune, 0, "ours")
    assert not table.wins(krum, 0, "ours")
    # 90 is in progress and does not count, and of one value alone nothing is the best.
    assert not table.wins(finetune, 1, "ours")
    assert not table.wins(fedavg, 1, "ours")
    assert not table.wins(fedavg, 0, "paper")


def test_first_round_at_the_target(tmp_path, write_run, study):
    experiment = plan(study, Selection(), tmp_path).runs[0].experiment
    run = RunData.read(write_run(experiment, tmp_path, [0.1, None, 0.35, 0.2, 0.4]))
    assert first_round(run, 0.35) == 3
    assert first_round(run, 0.36) == 5
    assert first_round(run, 0.5) is None


def rounds_study(study):
    tables = {"label": "high", "target": 0.5, "attack": {"rate": 0.25}}, {"label": "low", "attack": {"rate": 0.5}}
    changes = {"name": "tiny", "title": "t", "metric": "rounds", "axes": {"level": list(tables)}, "base": study.base}
    return Study.of(changes | {"seeds": 2, "methods": {k: {"aggregator": {"name": k}} for k in ("fedavg", "uniform")}})


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([0.1, 0.5], [0.6, 0.7], "1.5 ± 0.7"),  # rounds 2 and 1: mean 1.5, std √0.5
        ([0.1, 0.4], [0.6, 0.7], "≥ 1.5 ± 0.7 (1 never)"),  # never in 2 rounds counts as 2
        ([0.1, 0.4], [0.1, 0.2], "not in 2"),
    ],
)
def test_rounds_to_target(tmp_path, write_run, study, first, second, text):
    study = rounds_study(study)
    for planned in plan(study, Selection(), tmp_path).runs:
        if planned.trial.method == "fedavg":
            write_run(planned.experiment, tmp_path, first if planned.trial.seed == 0 else second)
    table = compare(plan(study, Selection(), tmp_path))
    assert texts(table)["fedavg", 0] == text
    assert texts(table)["fedavg", 1] == "not run"  # no target there
    assert ("≥: the seeds that never reach" in render(table, "text")) == ("never" in text)


def test_fewer_rounds_win_and_a_run_that_never_arrives_does_not(tmp_path, write_run, study):
    study = rounds_study(study)
    for planned in plan(study, Selection(), tmp_path).runs:
        if planned.trial.column == ("high",):
            write_run(planned.experiment, tmp_path, [0.1, 0.5] if planned.trial.method == "fedavg" else [0.1, 0.2])
    table = compare(plan(study, Selection(), tmp_path))
    assert [table.wins(row, 0, "ours") for row in table.rows] == [False, False]  # only one has arrived
    assert score([], "rounds", 0.5) is None


def test_text(filled):
    shown = render(compare(filled), "text").splitlines()
    assert shown[:2] == [
        "Digits under attack",
        "ours: test accuracy in %, mean of the last 10 evaluated rounds, mean ± sample std over 2 seeds",
    ]
    assert shown[3:7] == [
        "                       rate 0.25     rate 0.5",
        "FedAvg      ours  *45.00 ± 21.21  40.00 [1/2]",
        "Krum        ours         not run            –",
        "Finetuning  ours     20.00 [1/2]   90.00 @1/2",
    ]
    assert shown[8:] == ["[k/n]: k of n seeds finished.", "@k/n: in progress, after round k of n."]


def test_markdown_and_latex(filled):
    markdown = render(compare(filled), "markdown")
    assert "| FedAvg | ours | **45.00 ± 21.21** | 40.00 [1/2] |" in markdown
    assert "|---|---|---:|---:|" in markdown
    latex = render(compare(filled), "latex")
    assert r"FedAvg & ours & \textbf{45.00 $\pm$ 21.21} & 40.00 [1/2] \\" in latex
    assert r"in \%," in latex
    assert latex.count(r"\begin{tabular}{llrr}") == latex.count(r"\end{tabular}") == 1


def test_csv_has_a_line_per_method_and_column(filled):
    lines = list(csv.DictReader(render(compare(filled), "csv").splitlines()))
    assert len(lines) == 6
    first = lines[0]
    assert (first["study"], first["method"], first["axis1"], first["state"]) == ("tiny", "FedAvg", "rate 0.25", "done")
    assert float(first["mean"]) == pytest.approx(45)
    assert float(first["std"]) == pytest.approx(21.2132034)
    assert (first["seeds"], first["seeds_planned"], first["best"], first["paper_mean"]) == ("2", "2", "1", "")
    assert {line["state"] for line in lines} == {"done", "some seeds", "in progress", "not run", "does not apply"}
    with pytest.raises(UserError, match="--format = 'html': accepted are text, markdown, latex, csv"):
        render(compare(filled), "html")


def test_the_papers_numbers_stand_above_ours_and_its_winner_is_marked(tmp_path):
    whole = plan(read_study("table4"), Selection(where={"features": ("unit length",)}), tmp_path)
    lines = render(compare(whole), "markdown").splitlines()
    place = lines.index("| SmartFL (literal) | paper | **44.51 ± 1.10** | **47.33 ± 1.30** | **60.77 ± 0.70** |")
    assert lines[place + 1 : place + 3] == [
        "|  | ours | not run | not run | not run |",
        "| SmartFL (calibrated) | ours | not run | not run | not run |",
    ]
    assert "| FedAvg | paper | 30.64 ± 3.20 | 38.58 ± 2.30 | 59.76 ± 1.90 |" in lines
    # The paper counts accuracies there, not rounds: nothing to set beside rounds.
    assert all(entry.paper is None for row in compare(whole, "rounds").rows for entry in row.entries)


def test_many_columns_are_split_along_the_leading_axes(tmp_path):
    table = compare(plan(read_study("figureA2"), Selection(seeds=1), tmp_path))
    blocks = table.blocks(lambda titles: len(titles) <= 6)
    assert [shared for shared, _ in blocks] == [
        "alpha 0.01 · label flip", "alpha 0.01 · omniscient", "alpha 1 · label flip", "alpha 1 · omniscient",
    ]  # fmt: skip
    assert [table.header(k, blocks[1][0]) for k in blocks[1][1]] == ["rate 0.2", "rate 0.3", "rate 0.4", "rate 0.7"]
    assert sorted(k for _, places in blocks for k in places) == list(range(16))
    single = compare(plan(read_study("figure3"), Selection(), tmp_path))
    assert single.blocks(lambda titles: False) == [("", [0])]
    assert single.header(0, "") == "all"
