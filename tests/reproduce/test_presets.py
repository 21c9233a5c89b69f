"""Every table and figure of the paper, cell by cell, against the list of its experiments."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from smartfl.experiment.presets import preset_names, read_study, study_names
from smartfl.experiment.resolved import Resolved
from smartfl.reproduce.ledger import trajectory
from smartfl.reproduce.paper import paper_result, paper_results

ITEMS = {
    "tab:overview_1": "table1",
    "tab:local_epoch": "table2",
    "tab:overview_con": "table3",
    "tbl:nlp": "table4",
    "fig:val_size": "figure1",
    "fig:imbalance": "figure2",
    "fig:exp-overfit": "figure3",
    "fig:exp-attack": "figure4",
    "fig:visualization": "figure5",
    "fig:hetero": "figureA1",
    "fig:exp-attack-mnist-more": "figureA2",
    "fig:attack-cifar10-more": "figureA3",
    "fig:attack-fang": "figureA4",
}
DATASETS = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "FMNIST": "fashion-mnist",
    "MNIST": "mnist",
    "20newsgroups": "20newsgroups",
}
MODELS = {
    "ResNet-8": ["resnet8"],
    "2-layer ConvNet": ["convnet"],
    "LogisticRegression": ["logistic"],
    "ResNet-8+MobileNet+ShuffleNet": ["resnet8", "mobilenet", "shufflenet"],
}
ATTACKS = {"none": "none", "LabelFlip": "label_flip", "Omniscient": "omniscient", "FangMedian": "fang_median"}
# Cells of a panel with one method and seed, where the paper sweeps, draws twice, or leaves a setting open.
SPECIAL = {"figure1", "figure2", "figure3", "figure5", "figureA1"}

LINES = list(csv.DictReader((Path(__file__).parent / "paper_experiments.csv").read_text().splitlines()))


@cache
def trials_of(name: str):
    return read_study(name).trials()


def without_remark(text: str) -> str:
    return re.sub(r" \(.*?\)", "", text)


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def matches(trial, line) -> bool:
    e = trial.experiment
    stated = [
        (line["alpha"], e.data.alpha),
        (line["participation"], e.client.participation),
        (line["attack_rate"], e.attack.rate),
        (line["rounds"], e.rounds),
        (line["local_epochs"], e.client.epochs),
    ]
    return (
        e.data.dataset == DATASETS[line["dataset"]]
        and e.attack.name == ATTACKS[line["attack"]]
        and all(number(text) is None or number(text) == value for text, value in stated)
    )


def test_the_list_names_every_study_once():
    assert {line["item"] for line in LINES} == ITEMS.keys()
    assert sorted(ITEMS.values()) == study_names()
    assert set(preset_names()) == {*study_names(), "demo"}


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{ITEMS[line['item']]} {line['panel']} {line['alpha']}")
def test_a_panel_has_the_papers_methods_settings_and_seeds(line):
    study = read_study(ITEMS[line["item"]])
    trials = [t for t in trials_of(study.name) if matches(t, line)]
    assert trials
    theirs = {without_remark(name) for name in line["methods"].split(";")}
    ours = {study.methods[t.method].paper for t in trials} - {None}
    assert ours == theirs
    epochs = dict(pair.split("=") for pair in line["server_epochs_smartfl"].split(";"))
    rates = dict(pair.split("=") for pair in line["smartfl_lr"].split(";"))
    for trial in trials:
        e, paper = trial.experiment, study.methods[trial.method].paper
        assert e.data.clients == int(line["n_clients"])
        assert [m.name for m in e.model] == MODELS[without_remark(line["model"])]
        assert (e.client.optimizer, e.client.lr, e.client.batch_size) == ("adam", 1e-3, 32)
        if number(line["proxy_size"]) is not None:
            assert e.data.proxy.size == int(line["proxy_size"])
        if paper in epochs:
            assert e.aggregator.settings["server_epochs"] == int(epochs[paper])
            assert e.aggregator.settings["lr"] == float(rates[paper])
            assert e.aggregator.name.endswith("_literal")
    seeds = Counter((t.method, t.column) for t in trials)
    assert set(seeds.values()) == {int(number(line["repetitions"]) or 3)}
    assert {t.experiment.seed for t in trials} == {0, 1, 2}


@pytest.mark.parametrize("name", sorted(set(ITEMS.values()) - SPECIAL))
def test_the_number_of_runs_is_the_papers(name):
    """Methods × alphas × participations × rates × seeds, summed over the paper's list; Table 4 has two features."""
    study = read_study(name)
    expected = sum(len(line["methods"].split(";")) * 3 for line in LINES if ITEMS[line["item"]] == name)
    found = sum(study.methods[t.method].paper is not None for t in trials_of(name))
    assert found == expected * (2 if name == "table4" else 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("figure1", 2 * (4 * 6 + 1) * 3),  # 2 datasets, 4 methods at 6 sizes and FedAvg once, 3 seeds
        ("figure2", 2 * (2 * 6 + 1) * 3),  # 2 alphas, 2 methods at 6 degrees and FedAvg once
        ("figure3", 2 * 3),  # both panels show the same runs
        ("figure5", 2 * 4 * 3),
        ("figureA1", 2 * 2 * 2 * 3),
    ],
)
def test_the_number_of_runs_of_sweeps_and_open_panels(name, expected):
    study = read_study(name)
    assert sum(study.methods[t.method].paper is not None for t in trials_of(name)) == expected


@pytest.mark.parametrize("name", study_names())
def test_uniform_is_everywhere_and_literal_stands_beside_calibrated(name):
    study = read_study(name)
    assert study.methods["uniform"].changes["aggregator"] == {"name": "uniform"}
    rules = {m.changes["aggregator"]["name"] for k, m in study.methods.items() if k.startswith("smartfl")}
    assert any(rule.endswith("_literal") for rule in rules)
    assert not all(rule.endswith("_literal") for rule in rules)


@pytest.mark.parametrize("name", study_names())
def test_every_run_of_a_study_is_a_valid_experiment_of_its_own(name):
    trials = [t for t in trials_of(name) if t.seed == 0]
    assert len({Resolved.complete(t.experiment).digest for t in trials}) == len(trials)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4"])
def test_every_number_of_a_table_has_its_cell(name):
    """Each line of the paper's results is the value of exactly one cell (of two in Table 4, which has two features)."""
    study = read_study(name)
    lines = [line for line in paper_results() if line["table"] == study.paper]
    found = [
        paper_result(study.paper, study.methods[t.method].paper, t.experiment)
        for t in trials_of(name)
        if t.seed == 0 and study.methods[t.method].paper
    ]
    assert None not in found
    times = 2 if name == "table4" else 1
    assert sorted((s.mean, s.std) for s in found) == sorted(
        (float(line["mean"]), float(line["std"])) for line in lines for _ in range(times)
    )


def test_headline_numbers():
    study = read_study("table1")
    cell = {
        t.method: t.experiment for t in study.trials() if t.column == ("CIFAR-10", "alpha 0.01", "participation 0.4")
    }
    assert paper_result(study.paper, "SmartFL", cell["smartfl_literal"]).mean == 52.96
    assert paper_result(study.paper, "FedAvg", cell["fedavg"]).mean == 33.94
    assert paper_result(study.paper, "Krum", cell["fedavg"]) is None


def test_equal_cells_of_several_studies_are_one_run():
    """Table 3 continues Table 1, Figure 1 passes through it: the same digest but for the rounds."""
    keys = {
        name: {trajectory(Resolved.complete(t.experiment)) for t in trials_of(name) if t.seed == 0}
        for name in ("table1", "table3", "figure1", "figure4", "figureA2")
    }
    assert len(keys["table1"] & keys["table3"]) == 3 * 12  # three alphas, nine methods and three of ours
    assert len(keys["table1"] & keys["figure1"]) == 8  # CIFAR-10, alpha 0.01, 128 samples
    assert len(keys["figure4"] & keys["figureA2"]) == 2 * (11 + 8)  # MNIST, alpha 0.01, rates 0.4 and 0.7


def test_names_in_any_case():
    assert read_study("TABLE4") == read_study("table4")
    assert read_study("figurea2") == read_study("figureA2")
