from __future__ import annotations

from dataclasses import replace

from smartfl.experiment.schema import ClientSettings
from smartfl.records.run import RunRecord
from smartfl.report.grouping import TRAINING, group_runs


def labels(*paths):
    return [(group.label, group.seeds) for group in group_runs(map(RunRecord.read, paths))]


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
    assert found == ["Krum · label flip 0.2", "Krum · label flip 0.4", "Krum · no attack"]


def test_an_attack_from_the_first_round_is_what_records_without_that_setting_have(make_run):
    attack = {"name": "label_flip", "rate": 0.4}
    a = make_run("krum", folder="a", attack=attack)
    b = make_run("krum", folder="b", seed=1, attack=attack | {"since": 1})
    c = make_run("fedavg", folder="c", attack=attack | {"since": 1})
    d = make_run("krum", folder="d", attack=attack | {"since": 3})
    assert labels(a, b, c) == [("Krum", (0, 1)), ("FedAvg", (0,))]
    found = [x for x, _ in labels(a, b, d)]
    assert found == ["Krum · label flip 0.4", "Krum · label flip 0.4 from round 3"]


def test_the_same_seed_twice_is_not_averaged_and_the_same_path_counts_once(make_run):
    a, b = make_run("krum", folder="a"), make_run("krum", folder="b")
    assert labels(a, b, a) == [("Krum · a", (0,)), ("Krum · b", (0,))]


def test_several_models_are_told_apart(make_run):
    a = make_run("krum", folder="a", model={"name": "mlp"})
    b = make_run("krum", folder="b", model={"name": "logistic"})
    assert [x for x, _ in labels(a, b)] == ["Krum · model mlp", "Krum · model logistic"]


def data(dataset, alpha=0.1):
    return {"dataset": dataset, "clients": 20, "partition": "feddf", "alpha": alpha}


def client(participation, **changes):
    return {"algorithm": "plain", "lr": 0.001, "participation": participation, **changes}


def test_settings_that_follow_from_named_ones_are_left_out(make_run):
    """Rounds and participation follow from the dataset; alpha splits the two runs on digits; the attack is the same."""
    a = make_run("krum", folder="a", rounds=2, data=data("digits", 0.1), client=client(0.4))
    b = make_run("krum", folder="b", rounds=2, data=data("digits", 1.0), client=client(0.4))
    c = make_run("krum", folder="c", rounds=3, data=data("cifar10", 0.1), client=client(0.2))
    assert [x for x, _ in labels(a, b, c)] == ["Krum · digits · alpha 0.1", "Krum · digits · alpha 1",
                                               "Krum · cifar10 · alpha 0.1"]  # fmt: skip


def test_dataset_and_attack_are_named_even_where_one_follows_from_the_other(make_run):
    a = make_run("krum", folder="a", rounds=2, data=data("digits"))
    b = make_run("krum", folder="b", rounds=3, data=data("cifar10"), attack={"name": "none", "rate": 0.0})
    assert [x for x, _ in labels(a, b)] == ["Krum · digits · label flip 0.4", "Krum · cifar10 · no attack"]


def test_a_setting_of_the_rule_that_follows_from_the_scene_is_left_out(make_run):
    a = make_run(folder="a", data=data("digits"), aggregator={"name": "fltrust", "lr": 0.1})
    b = make_run(folder="b", data=data("cifar10"), aggregator={"name": "fltrust", "lr": 0.01})
    assert [x for x, _ in labels(a, b)] == ["FLTrust · digits", "FLTrust · cifar10"]


def test_the_clients_algorithm_belongs_to_the_method(make_run):
    """FedProx is FedAvg with other clients: it meets the same scene, and Krum's name does not mention it."""
    paths = [
        make_run("fedavg", folder="a", client=client(0.4)),
        make_run("fedavg", folder="b", client=client(0.4, algorithm="fedprox", mu=0.1)),
        make_run("krum", folder="c", client=client(0.4)),
    ]
    groups = group_runs(map(RunRecord.read, paths))
    assert [g.label for g in groups] == ["FedAvg · algorithm plain", "FedAvg · algorithm fedprox", "Krum"]
    assert len({g.scene for g in groups}) == 1


def test_how_clients_train_is_known_by_the_names_of_the_schema():
    assert ClientSettings.model_fields.keys() - {"algorithm"} == TRAINING


def test_the_names_of_a_study_stand(make_run):
    """The same run under two names is two groups; the same name with two seeds is one."""
    a, b = (RunRecord.read(make_run("krum", seed=s)) for s in (0, 1))
    runs = [replace(a, called="x"), replace(b, called="x"), replace(a, called="y")]
    assert [(g.label, g.seeds) for g in group_runs(runs)] == [("x", (0, 1)), ("y", (0,))]
