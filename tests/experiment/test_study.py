"""Study files: how they expand, and what is said about mistakes."""

from __future__ import annotations

import copy
import tomllib

import pytest

from smartfl.errors import UserError
from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Selection, Study, merged

TEXT = """
name = "toy"
title = "Toy"
seeds = 2
[base]
rounds = 7
data.clients = 9
[[axes.features]]
label = "unit"
data.options.norm = "l2"
[[axes.features]]
label = "raw, as it is"
data.options.norm = "none"
target = 0.5
[axes]
data.alpha = [0.1, 1.0]
client.participation = [0.5]
[methods.fedavg]
aggregator.name = "fedavg"
[methods.krum]
label = "Krum"
aggregator = { name = "krum", f = 1 }
[[exclude]]
methods = ["krum"]
when.data.alpha = [1.0]
when.features = ["unit"]
"""


@pytest.fixture
def tables():
    return tomllib.loads(TEXT)


def test_expansion(tables):
    """2 features × 2 alphas × 1 participation × 2 methods, without Krum at (unit, 1), times 2 seeds: 2 · (8 − 1)."""
    trials = Study.of(tables).trials()
    assert len(trials) == 14
    assert [t.seed for t in trials] == [0] * 7 + [1] * 7
    assert [(t.method, *t.column) for t in trials[:4]] == [
        ("fedavg", "unit", "alpha 0.1", "participation 0.5"),
        ("krum", "unit", "alpha 0.1", "participation 0.5"),
        ("fedavg", "unit", "alpha 1", "participation 0.5"),
        ("fedavg", "raw, as it is", "alpha 0.1", "participation 0.5"),
    ]
    last = trials[-1]
    assert (last.method, last.column, last.target) == ("krum", ("raw, as it is", "alpha 1", "participation 0.5"), 0.5)
    e = last.experiment
    assert (e.rounds, e.seed, e.name, e.data.clients, e.data.alpha) == (7, 1, "digits-krum", 9, 1.0)
    assert (e.data.options, e.client.participation) == ({"norm": "none"}, 0.5)
    assert e.aggregator.settings == {"f": 1}


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        (Selection(only=("krum",)), 6),
        (Selection(seeds=1), 7),
        (Selection(where={"data.alpha": ("1",)}), 6),
        (Selection(where={"data.alpha": ("1.0", "0.10")}), 14),
        (Selection(where={"data.alpha": ("1", "1.0", "alpha 1")}), 6),
        (Selection(where={"features": ("raw, as it is",)}), 8),
        (Selection(where={"features": ("unit",), "data.alpha": ("1",)}, only=("krum",)), 0),
    ],
)
def test_selection(tables, selection, count):
    assert len(Study.of(tables).trials(selection)) == count


def test_a_point_that_is_true_or_false_is_named_as_in_toml(tables):
    augmented = Study.of({**tables, "axes": {"data.augment": [True, False]}, "exclude": []})
    trials = augmented.trials(Selection(only=("krum",), where={"data.augment": ("true",)}, seeds=1))
    assert [(t.column, t.experiment.data.augment) for t in trials] == [(("augment true",), True)]


def test_rounds_settings_and_tuned_values_over_the_studys_own(tables):
    tuned = (("krum", {"data.alpha": ("0.1",)}, {"aggregator": {"f": 3}}), ("krum", {}, {"client": {"lr": 0.5}}))
    selection = Selection(rounds=3, settings=("data.clients=20", "seed=5"), tuned=tuned, seeds=1)
    found = {(t.method, t.column[1], t.column[0]): t.experiment for t in Study.of(tables).trials(selection)}
    e = found["krum", "alpha 0.1", "unit"]
    assert (e.rounds, e.data.clients, e.seed, e.aggregator.settings, e.client.lr) == (3, 20, 5, {"f": 3}, 0.5)
    assert found["krum", "alpha 1", "raw, as it is"].aggregator.settings == {"f": 1}
    assert found["fedavg", "alpha 0.1", "unit"].client.lr == 1e-3


def test_merging_leaves_its_arguments_alone():
    a = {"x": {"y": 1, "z": 2}, "w": [1]}
    before = copy.deepcopy(a)
    assert merged(a, {"x": {"y": 3}, "w": [2], "v": 0}) == {"x": {"y": 3, "z": 2}, "w": [2], "v": 0}
    assert a == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metric": "mean"}, "metric = 'mean'"),
        ({"colour": 1}, "colour is not a setting; accepted: name, title"),
        ({"methods": {}}, "methods"),
        ({"methods": {"a": {"agregator": {"name": "krum"}}}}, "'agregator' is not a setting; accepted: label, paper, "),
        (
            {"exclude": [{"methods": ["crum"], "when": {}}]},
            "exclude.methods: 'crum' is unknown; accepted: fedavg, krum",
        ),
        (
            {"exclude": [{"methods": ["krum"], "when": {"data": {"alpha": [2.0]}}}]},
            "data.alpha = 2.0 is not in the study",
        ),
        ({"exclude": [{"methods": ["krum"], "when": {"beta": [2.0]}}]}, "'beta' is unknown"),
        ({"figure": {"kind": "sweep", "x": "beta"}}, "figure.x: 'beta' is unknown"),
        ({"seeds": 0}, "seeds = 0"),
        ({"axes": {"data": {"alpha": 0.1}}}, "axes.data.alpha = 0.1: a list of at least one value is accepted"),
        ({"axes": {"data": {"partition": "iid"}}}, "axes.data.partition = 'iid': a list"),
        ({"axes": {"data": {"alpha": []}}}, "axes.data.alpha = []: a list of at least one value"),
        ({"axes": [1]}, "axes = [1]: a table is accepted"),
        ({"methods": []}, "methods = []: a table is accepted"),
        ({"methods": {"krum": "krum"}}, "methods.krum = 'krum': a table is accepted, [methods.krum]"),
        (
            {"axes": {"f": [{"label": "x", "data": {"alpha": 0.1}}, {"label": "x", "data": {"alpha": 1.0}}]}},
            "axes.f: two points are called 'x'",
        ),
        ({"figure": {"kind": "sweep", "x": "features"}}, "figure.x = 'features': the axis of a sweep must be"),
        ({"axes": {"data": {"alpha": [1.0]}}, "exclude": [], "metric": "rounds"}, "needs points with a target"),
    ],
)
def test_a_mistake_in_a_study_is_one_sentence(tables, change, said):
    with pytest.raises(UserError) as error:
        Study.of(tables | change)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "'title'" not in str(error.value)  # the whole study is not part of the sentence


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(only=("crum",)), "--only: 'crum' is unknown; accepted: fedavg, krum"),
        (Selection(where={"alpha": ("1",)}), "--where: 'alpha' is unknown; accepted: features, data.alpha, "),
        (Selection(where={"data.alpha": ("3",)}), "--where: data.alpha = 3 is not in the study; accepted: 0.1, 1"),
        (Selection(where={"features": ("x",)}), "accepted: unit, raw, as it is"),
    ],
)
def test_a_mistake_in_a_selection_is_one_sentence(tables, selection, said):
    with pytest.raises(UserError) as error:
        Study.of(tables).trials(selection)
    assert said in str(error.value)


def test_a_table_that_is_none_is_the_experiments_mistake(tables):
    with pytest.raises(UserError, match=r"^data = 3: "):
        Study.of(tables | {"base": {"data": 3}, "axes": {}, "exclude": []}).trials()


def test_any_name_will_do_for_a_file_and_a_method(tmp_path):
    file = tmp_path / "my study (1).toml"
    file.write_text('title = "t"\n[methods."my rule"]\naggregator.name = "fedavg"\n')
    study = read_study(str(file))
    assert study.name == "my-study-1-"
    assert study.trials(Selection(seeds=1))[0].experiment.name == "digits-my-rule"


def test_names_that_are_no_study(tmp_path):
    with pytest.raises(UserError, match="'demo' is not a table or figure of the paper; accepted: figure1, "):
        read_study("demo")
    plain = tmp_path / "plain.toml"
    plain.write_text("rounds = 3\n")
    with pytest.raises(UserError, match=r"has no \[methods\] and is a plain experiment"):
        read_study(str(plain))
    with pytest.raises(UserError, match="does not exist"):
        read_study(str(tmp_path / "absent.toml"))
