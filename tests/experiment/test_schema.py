"""Every bad input is one sentence that names the setting; the digest knows what decides a result."""

from __future__ import annotations

import pytest

from smartfl.errors import UserError
from smartfl.experiment.build import build_rule, with_rule
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.simulation import Simulation

LABEL_FLIP = {"name": "label_flip", "rate": 0.4}

# What is wrong, and the beginning of the sentence or a part of it.
IN_THE_FILE = [
    ({"round": 3}, r"^round is not a setting \(did you mean rounds\?\); accepted: name, seed, rounds, "),
    (
        {"data": {"alfa": 0.1}},
        r"^data\.alfa is not a setting \(did you mean alpha\?\); accepted: dataset, clients, partition, alpha",
    ),
    (
        {"data": {"proxy": {"sice": 3}}},
        r"^data\.proxy\.sice is not a setting \(did you mean size\?\); accepted: size, imbalance",
    ),
    ({"rounds": "many"}, r"^rounds = 'many': .*integer"),
    ({"rounds": 0}, r"^rounds = 0: .*greater than or equal to 1"),
    ({"rounds": 2.5}, r"^rounds = 2\.5: .*integer"),
    ({"seed": -1}, r"^seed = -1: "),
    ({"name": "a/b"}, r"^name = 'a/b': "),
    ({"seed": 1 << 63}, r"^seed = 9223372036854775808: .*less than 9223372036854775808"),
    ({"rounds": 1_000_000}, r"^rounds = 1000000: .*less than 1000000"),
    ({"data": {"clients": 1_000_001}}, r"^data\.clients = 1000001: .*less than or equal to 1000000"),
    ({"data": {"options": {"mean": [0.5, float("inf")]}}}, r"^data\.options\.mean = inf: a finite number is accepted"),
    ({"aggregator": {"name": "my:Rule", "limit": float("nan")}}, r"^aggregator\.limit = nan: a finite number"),
    ({"data": {"alpha": 0}}, r"^data\.alpha = 0: .*greater than 0"),
    ({"data": {"alpha": -0.5}}, r"^data\.alpha = -0\.5: .*greater than 0"),
    ({"data": {"alpha": float("nan")}}, r"^data\.alpha = nan: "),
    ({"data": {"alpha": float("inf")}}, r"^data\.alpha = inf: .*finite"),
    ({"data": {"clients": 0}}, r"^data\.clients = 0: "),
    ({"data": {"proxy": {"size": -1}}}, r"^data\.proxy\.size = -1: "),
    ({"data": {"proxy": {"imbalance": 0.5}}}, r"^data\.proxy\.imbalance = 0\.5: "),
    ({"data": 5}, r"^data = 5: "),
    ({"client": {"participation": 0}}, r"^client\.participation = 0: .*greater than 0"),
    ({"client": {"participation": 1.1}}, r"^client\.participation = 1\.1: .*less than or equal to 1"),
    ({"client": {"optimizer": "adamw"}}, r"^client\.optimizer = 'adamw': .*'adam' or 'sgd'"),
    ({"client": {"lr": 0}}, r"^client\.lr = 0: "),
    ({"client": {"lr": float("inf")}}, r"^client\.lr = inf: .*finite"),
    ({"client": {"momentum": 1.0}}, r"^client\.momentum = 1\.0: "),
    ({"client": {"batch_size": 0}}, r"^client\.batch_size = 0: "),
    ({"attack": {"name": "label_flip", "rate": 1.5}}, r"^attack\.rate = 1\.5: "),
    ({"attack": {"name": "label_flip"}}, r"attack\.rate must be above 0 for the attack 'label_flip'$"),
    (
        {"attack": {"name": "label_flip", "rat": 0.4}},
        r"attack\.rate must be above 0 .* \(attack\.rat is another setting\)",
    ),
    ({"attack": {"rate": 0.4}}, r"attack\.name must be given when attack\.rate is above 0"),
    ({"attack": LABEL_FLIP | {"who": "all"}}, r"^attack\.who = 'all': .*'fixed' or 'per_round'"),
    ({"attack": LABEL_FLIP | {"since": 0}}, r"^attack\.since = 0: "),
    ({"attack": LABEL_FLIP | {"since": 4}, "rounds": 3}, r"attack\.since = 4 is after the last of 3 rounds"),
    ({"attack": {"since": 2}}, r"attack\.name must be given when attack\.since is above 1"),
    ({"attack": LABEL_FLIP | {"report": "lots"}}, r"^attack\.report = 'lots': "),
    ({"attack": LABEL_FLIP | {"report": -3}}, r"^attack\.report = -3: "),
    ({"aggregator": "krum"}, r"^aggregator = 'krum': a table is accepted, \[aggregator\]$"),
    ({"model": []}, r"^model = .*at least one model"),
]

BEFORE_A_RUN = [
    (
        {"attack": {"name": "mimic", "rate": 0.2}, "model": [{"name": "mlp"}, {"name": "logistic"}]},
        r"^attack\.name = 'mimic' follows one direction and accepts one model$",
    ),
    ({"aggregator": {"name": "crum"}}, r"^aggregator\.name = 'crum' is unknown; accepted: "),
    ({"aggregator": {"name": "krum", "g": 1}}, r"^aggregator\.g is not a setting; accepted: f, fraction"),
    ({"aggregator": {"name": "krum", "f": 1}}, r"^aggregator 'krum': f = 1 is too large for 4 clients: at most 0"),
    ({"aggregator": {"name": "krum", "f": -1}}, r"^aggregator\.f = -1 "),
    ({"aggregator": {"name": "trimmed_mean", "b": 2}}, r"^aggregator 'trimmed_mean': b = 2 is too large"),
    ({"aggregator": {"name": "smartfl", "lr": -1}}, r"^aggregator.*lr"),
    ({"aggregator": {"name": "smartfl", "variant": "best"}}, r"^aggregator\.variant = 'best': .*'calibrated'"),
    (
        {"aggregator": {"name": "smartfl"}, "data": {"proxy": {"size": 0}}},
        r"^data\.proxy\.size = 0, but the aggregator 'smartfl' needs proxy data",
    ),
    ({"aggregator": {"name": "bucketing"}}, r"^aggregator\.rule is required"),
    ({"attack": {"name": "label_flop", "rate": 0.1}}, r"^attack\.name = 'label_flop' is unknown; accepted: "),
    (
        {"attack": LABEL_FLIP | {"loud": True}},
        r"^attack\.loud is not a setting; accepted: name, rate, who, since, report, variant",
    ),
    ({"aggregator": {"nam": "krum"}}, r"^aggregator\.nam is not a setting \(did you mean name\?\)"),
    ({"aggregator": {"name": "fedavg", "f": 2}}, r"^aggregator\.f is not a setting: 'fedavg' has none$"),
    (
        {"client": {"epoch": 2}},
        r"^client\.epoch is not a setting \(did you mean epochs\?\); accepted: algorithm, optim",
    ),
    ({"attack": {"scale": 3.0}}, r"^attack\.scale is set, but attack\.name is 'none'"),
    (
        {"client": {"algorithm": "fedprix"}},
        r"^client\.algorithm = 'fedprix' is unknown; accepted: fedprox, lasting, plain, sca",
    ),
    ({"client": {"mu": 0.1}}, r"^client\.mu is not a setting; accepted: algorithm, "),
    ({"client": {"algorithm": "fedprox", "mu": -1}}, r"^client\.mu = -1"),
    (
        {"client": {"algorithm": "scaffold"}, "model": [{"name": "mlp"}, {"name": "logistic"}]},
        r"^client\.algorithm = 'scaffold' .*one model, got 2",
    ),
    ({"model": {"name": "vgg"}}, r"^model\.name = 'vgg' is unknown; accepted: "),
    ({"model": {"name": "mlp", "hidden": 8}}, r"^model\.hidden = 8: "),
    ({"model": {"name": "mlp", "depth": 8}}, r"^model\.depth is not a setting; accepted: hidden"),
    ({"data": {"dataset": "digit"}}, r"^data\.dataset = 'digit' is unknown; accepted: "),
    ({"data": {"partition": "dirichlet"}}, r"^data\.partition = 'dirichlet' is unknown; accepted: "),
    ({"data": {"clients": 5000}}, r"^data\.clients = 5000 is more than the 1438 samples"),
    (
        {"data": {"proxy": {"size": 2000}}, "aggregator": {"name": "smartfl"}},
        r"^data\.proxy\.size = 2000 is accepted from 0 to 1438",
    ),
    ({"data": {"dataset": "arrays", "options": {"path": "/no/such/file.npz"}}}, r"/no/such/file\.npz"),
    ({"data": {"dataset": "arrays"}}, r"^data\.options\.path is required"),
    ({"aggregator": {"name": "smartfl", "lr": float("inf")}}, r"^aggregator\.lr = inf: .*finite"),
    ({"attack": {"name": "sign_flip", "rate": 0.5, "scale": float("nan")}}, r"^attack\.scale = nan: .*finite"),
]


@pytest.mark.parametrize(("change", "sentence"), IN_THE_FILE)
def test_mistakes_in_the_file(tiny_tables, change, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        Experiment.of(tiny_tables(**change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("change", "sentence"), BEFORE_A_RUN)
def test_mistakes_that_only_names_and_data_show(tiny, change, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        Simulation(tiny(**change), executor="serial")
    assert "\n" not in str(caught.value)


def test_krum_wants_2f_plus_3_clients(tiny):
    """A cohort of 4 bears f = 0, one of 5 bears f = 1."""
    five = {"data": {"clients": 10}, "aggregator": {"name": "krum", "f": 1}}
    Resolved.of(tiny(**five))
    with pytest.raises(UserError, match="f = 1 is too large for 4 clients"):
        Resolved.of(tiny(aggregator={"name": "krum", "f": 1}))


def test_cohort_sizes_of_the_paper():
    for participation, size in ((0.2, 16), (0.4, 32), (0.6, 48), (0.001, 1), (1, 80)):
        assert Experiment.of({"client": {"participation": participation}}).cohort_size == size


def test_one_model_is_a_table_and_many_are_a_list():
    one, many = {"name": "mlp"}, [{"name": "mlp"}, {"name": "logistic"}]
    assert Experiment.of({"model": one}).tables()["model"] == one
    assert Experiment.of({"model": [one]}).digest == Experiment.of({"model": one}).digest
    assert Experiment.of({"model": many}).tables()["model"] == many


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"rounds": 3},
        {"evaluate_every": 2},
        {"data": {"alpha": 0.2}},
        {"data": {"proxy": {"size": 33}}},
        {"model": {"name": "mlp", "hidden": [9]}},
        {"client": {"lr": 0.02}},
        {"attack": LABEL_FLIP},
        {"aggregator": {"name": "median"}},
    ],
)
def test_the_digest_changes_with_every_setting_that_decides_a_result(tiny, change):
    assert Resolved.of(tiny(**change)).experiment.digest != Resolved.of(tiny()).experiment.digest


def test_the_digest_ignores_the_name_and_the_checkpoints(tiny):
    assert tiny(name="other", checkpoint_every=7).digest == tiny().digest


def test_the_digest_is_the_same_for_a_default_left_out_or_written_out(tiny):
    written = tiny(aggregator={"name": "smartfl", "server_epochs": 20, "lr": 0.01}, client={"momentum": 0.0})
    left_out = tiny(aggregator={"name": "smartfl"})
    assert Resolved.of(written).experiment.digest == Resolved.of(left_out).experiment.digest


def test_resolving_writes_out_every_default_and_is_idempotent(tiny):
    experiment = tiny(
        aggregator={"name": "krum"}, attack=LABEL_FLIP, client={"algorithm": "fedprox"}, data={"clients": 20}
    )
    once = Resolved.of(experiment).experiment
    assert once.tables()["aggregator"] == {"name": "krum", "fraction": 0.4}
    assert once.client.settings == {"mu": 0.01, "decoupled": False}
    assert Resolved.of(once).experiment == once


def test_rules_assume_the_attack_rate_unless_told_otherwise(tiny):
    attacked = {"attack": LABEL_FLIP, "data": {"clients": 20}}
    assert build_rule(tiny(aggregator={"name": "krum"}, **attacked)).fraction == 0.4
    assert build_rule(tiny(aggregator={"name": "krum", "f": 1}, **attacked)).fraction is None
    assert build_rule(tiny(aggregator={"name": "krum", "fraction": 0.1}, **attacked)).fraction == 0.1
    nested = build_rule(tiny(aggregator={"name": "clipping", "rule": {"name": "krum"}}, **attacked))
    assert nested.rule.fraction == 0.4


def test_another_rule_leaves_the_old_rules_settings_behind(tiny):
    experiment = tiny(aggregator={"name": "krum", "f": 0})
    assert with_rule(experiment, "median").aggregator.settings == {}
    assert with_rule(experiment, "krum") is experiment


def test_defaults_of_a_rule_inside_a_rule_are_written_out(tiny):
    """Or a changed default would leave the digest, and old records would count for the new rule."""
    table = {"name": "reestimated", "rule": {"name": "clipping", "rule": {"name": "smartfl", "lr": 0.1}}}
    found = Resolved.of(tiny(aggregator=table)).experiment.tables()["aggregator"]
    inner = found["rule"]["rule"]
    assert (inner["lr"], inner["penalty"], inner["init"]) == (0.1, 0.5, "best")
    assert build_rule(Experiment.of(tiny(aggregator=found).tables())) == build_rule(tiny(aggregator=table))


def test_what_smartfl_u_uses_is_written_out(tiny):
    """Settings that depend on the variant are not left to be guessed from it."""
    for variant, expected in (("literal", (5e-4, "mixed")), ("calibrated", (1e-2, "reestimate"))):
        table = {"name": "smartfl_unlabelled", "variant": variant}
        found = Resolved.of(tiny(aggregator=table)).experiment.tables()["aggregator"]
        assert (found["lr"], found["batchnorm"]) == expected
