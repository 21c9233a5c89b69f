"""Names become objects: unknown names, wrong settings, nested rules, dotted paths, a third-party package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smartfl import registry
from smartfl.aggregators.bucketing import Bucketing
from smartfl.aggregators.clipping import Clipping
from smartfl.aggregators.krum import Krum
from smartfl.errors import UserError
from smartfl.registry import KINDS, build, names, resolve


def test_every_kind_has_its_names():
    assert {"fedavg", "krum", "median", "smartfl", "trimmed_mean", "uniform"} <= set(names("aggregators"))
    assert {"label_flip", "omniscient"} <= set(names("attacks"))
    assert names("clients") == ["fedprox", "lasting", "plain", "scaffold"]
    assert {"digits", "arrays", "image_folder"} <= set(names("datasets"))
    assert {"convnet", "logistic", "mlp"} <= set(names("models"))
    partitions = {"double_stochastic", "feddf", "feddf_blocks", "hsu", "iid", "per_class", "shards"}
    assert partitions == set(names("partitions"))
    assert all(names(kind) == sorted(names(kind)) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_lists_the_accepted_ones(kind):
    with pytest.raises(UserError, match=rf"^{kind[:-1]} 'nonsense' is unknown; accepted: .*{names(kind)[0]}"):
        resolve(kind, "nonsense")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"g": 2}, r"^aggregator\.g is not a setting; accepted: f, fraction$"),
        ({"f": "two"}, r"^aggregator\.f = 'two': .*integer"),
        ({"f": 1.5}, r"^aggregator\.f = 1\.5: .*integer"),
        ({"f": -1}, r"^aggregator\.f = -1 must be 0 or more$"),
    ],
)
def test_wrong_settings_are_one_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        build("aggregators", "krum", settings, "aggregator")


def test_settings_reach_the_object():
    assert build("aggregators", "krum", {"f": 2}) == Krum(f=2)


def test_a_rule_table_is_built_first_and_nests():
    table = {"size": 2, "rule": {"name": "clipping", "rule": {"name": "krum", "f": 1}}}
    rule = build("aggregators", "bucketing", table, "aggregator")
    assert isinstance(rule, Bucketing)
    assert isinstance(rule.rule, Clipping)
    assert rule.rule.rule == Krum(f=1)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rule": {"f": 1}}, r"^aggregator\.rule needs a name$"),
        ({"rule": {"name": "krum", "g": 1}}, r"^aggregator\.rule\.g is not a setting"),
        ({"rule": {"name": "nonsense"}}, r"aggregator 'nonsense' is unknown"),
        ({"rule": 5}, r"^aggregator\.rule = 5: a table with a name is accepted$"),
        ({}, r"^aggregator\.rule is required$"),
    ],
)
def test_mistakes_in_a_nested_rule_name_their_place(table, sentence):
    with pytest.raises(UserError, match=sentence):
        build("aggregators", "bucketing", table, "aggregator")


def test_a_dotted_path_needs_no_registration():
    assert build("aggregators", "smartfl.aggregators.krum:Krum", {"f": 1}) == Krum(f=1)


@pytest.mark.parametrize("path", ["no_such_module:X", "smartfl.rng:NoSuchName", "smartfl.rng:", ":X", "a b:c"])
def test_a_dotted_path_that_leads_nowhere_is_the_users_mistake(path):
    with pytest.raises(UserError, match="cannot be loaded"):
        resolve("aggregators", path)


def install(site: Path, entry_points: str, **modules: str) -> None:
    """A distribution on disk, as pip leaves it."""
    info = site / "other_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "site")
    registry._entries.cache_clear()
    yield tmp_path / "site"
    registry._entries.cache_clear()


def test_an_entry_point_that_leads_nowhere_is_one_sentence(site):
    points = "[smartfl.aggregators]\nbroken = rules_of_others:Missing\ngone = no_such_module:X\n"
    install(site, points, rules_of_others="")
    for name in ("broken", "gone"):
        with pytest.raises(UserError, match=f"^aggregator '{name}' cannot be loaded: "):
            resolve("aggregators", name)


PACKAGE = '''
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING
from torch import nn
from smartfl.aggregators.base import Aggregator, weighted

if TYPE_CHECKING:
    from collections.abc import Sized


@dataclass(frozen=True)
class First(Aggregator):
    """The client with the smallest id, whatever it sends."""

    power: float = 1.0

    def aggregate(self, updates, server):
        p = updates.weights.new_zeros(len(updates))
        p[0] = 1
        return weighted(updates, p, power=self.power)


def small(input_shape: Sized, num_classes: int, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, num_classes))
'''


def test_a_third_party_package_adds_a_rule_and_a_model(smartfl, tiny_tables):
    """A real distribution on the path: its rule is listed, and a run with worker processes uses rule and model."""
    site = smartfl.directory / "site"
    points = "[smartfl.aggregators]\nfirst = other_rules:First\n\n[smartfl.models]\nsmall = other_rules:small\n"
    install(site, points, other_rules=PACKAGE)
    smartfl.environment["PYTHONPATH"] = str(site)
    listed = smartfl("list", "aggregators")
    assert listed.returncode == 0
    assert {"first", "krum"} <= set(listed.stdout.split())
    tables = tiny_tables(aggregator={"name": "first", "power": 2.0}, model={"name": "small", "width": 5}, rounds=1)
    done = smartfl("run", smartfl.write(tables), "--workers", "1")
    assert (done.returncode, done.stderr) == (0, "")
    path = smartfl.directory / Path(done.stdout.splitlines()[-1])
    line = json.loads((path / "coefficients.jsonl").read_text())
    assert line["coefficients"] == [1, 0, 0, 0]
    assert json.loads((path / "rounds.jsonl").read_text())["info"]["power"] == 2
