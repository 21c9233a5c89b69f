from __future__ import annotations

from smartfl.report.grouping import group_runs
from smartfl.report.run_data import RunData


def labels(*paths):
    return [(group.label, group.seeds) for group in group_runs(map(RunData.read, paths))]


def test_runs_that_differ_in_seed_and_name_are_one_group(make_run):
    paths = [make_run("krum", seed=2), make_run("fedavg", seed=1), make_run("krum", seed=0, name="other")]
    assert labels(*paths) == [("Krum", (0, 2)), ("FedAvg", (1,))]


def test_a_setting_that_differs_is_in_the_label(make_run):
    rule = {"name": "smartfl", "variant": "literal"}
    a = make_run(folder="a", aggregator=rule | {"lr": 0.1})
    b = make_run(folder="b", aggregator=rule | {"lr": 0.01})
    c = make_run("krum", folder="c")
    assert [x for x, _ in labels(a, b, c)] == ["SmartFL (literal) · lr 0.1", "SmartFL (literal) · lr 0.01", "Krum"]


def test_an_attack_that_differs_is_in_every_label(make_run):
    a = make_run("krum", folder="a", attack={"name": "label_flip", "rate": 0.2})
    b = make_run("krum", folder="b", attack={"name": "label_flip", "rate": 0.4})
    c = make_run("krum", folder="c", attack={"name": "none", "rate": 0.0})
    found = [x for x, _ in labels(a, b, c)]
    assert found == ["Krum · attack label flip 0.2", "Krum · attack label flip 0.4", "Krum · attack none"]


def test_the_same_seed_twice_is_not_averaged_and_the_same_path_counts_once(make_run):
    a, b = make_run("krum", folder="a"), make_run("krum", folder="b")
    assert labels(a, b, a) == [("Krum · a", (0,)), ("Krum · b", (0,))]


def test_several_models_are_told_apart(make_run):
    a = make_run("krum", folder="a", model={"name": "mlp"})
    b = make_run("krum", folder="b", model={"name": "logistic"})
    assert [x for x, _ in labels(a, b)] == ["Krum · model mlp", "Krum · model logistic"]
