"""TOML files and --set."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from smartfl.errors import UserError
from smartfl.experiment.files import override, read_experiment, write_experiment
from smartfl.experiment.presets import preset_names
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment

BASE = {
    "rounds": 3,
    "data": {"alpha": 0.1},
    "attack": {"name": "omniscient", "rate": 0.4, "scale": 2.0},
    "aggregator": {"name": "smartfl", "lr": 0.1},
}


def test_a_shipped_experiment_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``demo`` is the shipped one unless a file of that name lies here."""
    monkeypatch.chdir(tmp_path)
    assert read_experiment(Path("demo")).name == "demo"
    Path("demo").write_text("seed = 7\n")
    assert read_experiment(Path("demo")).seed == 7
    with pytest.raises(UserError, match="'dmeo' does not exist; an experiment that ships with smartfl is 'demo'"):
        read_experiment(Path("dmeo"))


def test_a_study_is_sent_to_reproduce() -> None:
    with pytest.raises(
        UserError, match=r"'table4' has \[methods\] and is a study of many runs: smartfl reproduce table4"
    ):
        read_experiment(Path("table4"))


def test_a_name_made_of_a_file_name_is_fit_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "my first (try).toml").write_text("seed = 7\n")
    assert read_experiment(tmp_path / "my first (try).toml").name == "my-first-try-"


def test_settings_without_a_name_are_those_of_the_default() -> None:
    chosen = Experiment.of(override({}, ["model.hidden=[5]", "aggregator.server_epochs=3"]))
    assert chosen.model[0].name == "mlp"
    assert chosen.model[0].settings == {"hidden": [5]}
    assert (chosen.aggregator.name, chosen.aggregator.settings) == ("smartfl", {"server_epochs": 3})


def test_values_are_toml_and_bare_words_are_text():
    settings = [
        "rounds=7",
        "data.alpha = 0.5",
        "data.augment=true",
        "model.name=mlp",
        "model.hidden=[3, 4]",
        "name=a-b",
    ]
    result = override(BASE, settings)
    assert result["rounds"] == 7
    assert result["data"] == {"alpha": 0.5, "augment": True}
    assert result["model"] == {"name": "mlp", "hidden": [3, 4]}
    assert result["name"] == "a-b"
    assert BASE["rounds"] == 3, "the tables that came in stay as they were"


def test_quoted_text_keeps_what_looks_like_a_number():
    assert override({}, ['name="5"'])["name"] == "5"


def test_tables_on_the_way_are_made():
    assert override({}, ["data.proxy.size=64"]) == {"data": {"proxy": {"size": 64}}}


def test_a_new_rule_clears_the_settings_of_the_old_one():
    assert override(BASE, ["aggregator.name=krum"])["aggregator"] == {"name": "krum"}
    assert override(BASE, ["aggregator.name=smartfl"])["aggregator"] == BASE["aggregator"]


def test_naming_the_default_clears_nothing():
    tables = {"aggregator": {"server_epochs": 3}, "model": {"hidden": [7]}, "attack": {"rate": 0.0}}
    named = override(tables, ["aggregator.name=smartfl", "model.name=mlp", "attack.name=none"])
    assert named["aggregator"] == {"name": "smartfl", "server_epochs": 3}
    assert named["model"] == {"name": "mlp", "hidden": [7]}
    assert override(tables, ["aggregator.name=krum"])["aggregator"] == {"name": "krum"}


@pytest.mark.parametrize("order", [1, -1])
def test_settings_of_the_new_rule_count_whatever_their_order(order):
    settings = ["aggregator.name=krum", "aggregator.f=2"][::order]
    assert override(BASE, settings)["aggregator"] == {"name": "krum", "f": 2}


def test_a_new_attack_keeps_its_rate():
    assert override(BASE, ["attack.name=label_flip"])["attack"] == {"name": "label_flip", "rate": 0.4}
    kept = {"rate": 0.4, "who": "per_round", "since": 3, "report": "max"}
    tables = {"attack": {"name": "gaussian", "std": 2.0, **kept}}
    assert override(tables, ["attack.name=label_flip"])["attack"] == {"name": "label_flip", **kept}


def test_no_attack_has_no_rate():
    """--set attack.name=none is all it takes to see the run without its attackers."""
    assert Experiment.of(override(BASE, ["attack.name=none"])).attack.rate == 0


def test_later_settings_win():
    assert override(BASE, ["rounds=1", "rounds=2"])["rounds"] == 2


@pytest.mark.parametrize("text", ["rounds", "=3", " = 3", ""])
def test_anything_but_key_and_value_is_refused(text):
    with pytest.raises(UserError, match="--set takes key=value"):
        override(BASE, [text])


@pytest.mark.parametrize("text", ["rounds.x=1", "aggregator.name.x=1"])
def test_a_value_is_no_table(text):
    with pytest.raises(UserError, match="is not a table"):
        override(BASE, [text])


def test_the_name_defaults_to_the_files(tmp_path):
    path = tmp_path / "noniid.toml"
    path.write_text("rounds = 2\n")
    assert read_experiment(path).name == "noniid"
    assert read_experiment(path, ["name=x"]).name == "x"
    path.write_text('name = "given"\n')
    assert read_experiment(path).name == "given"


def test_files_that_cannot_be_read(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("rounds = = 2")
    with pytest.raises(UserError, match=r"bad\.toml' is not valid TOML: .*line 1"):
        read_experiment(bad)
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bad\.toml' cannot be read"):
        read_experiment(bad)
    with pytest.raises(UserError, match=r"absent\.toml' does not exist"):
        read_experiment(tmp_path / "absent.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_experiment(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"aggregator": {"name": "krum", "f": 0}},
        {"aggregator": {"name": "clipping", "rule": {"name": "median"}}},
        {"model": [{"name": "mlp", "hidden": [4]}, {"name": "logistic"}]},
        {"attack": {"name": "label_flip", "rate": 0.5, "report": 7}},
        {"data": {"options": {"path": "x.npz", "n": [1, 2.5]}}},
    ],
)
def test_a_resolved_experiment_survives_its_file(tiny, tmp_path, change):
    experiment = Resolved.of(tiny(**change)).experiment
    path = tmp_path / "experiment.toml"
    path.write_text(write_experiment(experiment))
    again = read_experiment(path)
    assert again == experiment
    assert again.digest == experiment.digest
    assert Resolved.of(again).experiment.digest == experiment.digest
    tomllib.loads(path.read_text())


def test_the_demo_is_a_preset():
    assert "demo" in preset_names()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"name = '\xff'", "cannot be read: 'utf-8' codec"),
        (b"a = " + b"[" * 100_000, "nested too deep"),
        (b"seed = " + b"9" * 5000, "is not valid TOML: Exceeds the limit"),
        (b"#" * (1 << 24), "larger than 8 MB"),
    ],
    ids=["not UTF-8", "deep", "a long number", "huge"],
)
def test_a_hostile_file_is_one_sentence(tmp_path, content, complaint):
    file = tmp_path / "hostile.toml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"^experiment file '.*hostile\.toml' .*{complaint}"):
        read_experiment(file)


def test_a_file_without_end_is_not_read_to_it():
    with pytest.raises(UserError, match="larger than 8 MB"):
        read_experiment(Path("/dev/zero"))


def test_a_deep_override_is_one_sentence(tmp_path):
    (tmp_path / "plain.toml").write_text("rounds = 2")
    with pytest.raises(UserError, match=r"^--set data\.options: the value is nested too deep"):
        read_experiment(tmp_path / "plain.toml", ["data.options=" + "[" * 100_000])
