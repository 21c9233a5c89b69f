"""Code that is not ours is part of the experiment: an edited rule is run again."""

from __future__ import annotations

import importlib
import sys

import pytest

from smartfl.errors import UserError
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.reproduce.ledger import Ledger
from smartfl.runs.execute import default_path, execute

RULE = """
from dataclasses import dataclass
from smartfl.aggregators import Uniform
from own_helper_{tag} import factor

@dataclass(frozen=True)
class Mine(Uniform):
    def aggregate(self, updates, server):
        result = super().aggregate(updates, server)
        result.vector.mul_(factor)
        return result
"""


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """Writes a rule of one's own and a module that it uses, and loads them anew."""
    monkeypatch.syspath_prepend(tmp_path)
    tag = abs(hash(request.node.name)) % 10**8

    def write(factor=1.0, comment=""):
        (tmp_path / f"own_helper_{tag}.py").write_text(f"factor = {factor}\n")
        (tmp_path / f"own_rule_{tag}.py").write_text(RULE.format(tag=tag) + comment)
        for module in (f"own_helper_{tag}", f"own_rule_{tag}"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        return f"own_rule_{tag}:Mine"

    return write


def digest(experiment):
    return Resolved.complete(experiment).digest


@pytest.mark.parametrize("edit", [{"comment": "# twice as good"}, {"factor": 2.0}])
def test_an_edited_rule_or_a_module_that_it_uses_is_another_experiment(tiny, own, edit):
    name = own()
    before = digest(tiny(aggregator={"name": name}))
    assert digest(tiny(aggregator={"name": own()})) == before
    assert digest(tiny(aggregator={"name": own(**edit)})) != before


def test_wherever_the_name_stands(tiny, own):
    wrapped = tiny(aggregator={"name": "clipping", "rule": {"name": own()}})
    before = Resolved.complete(wrapped)
    assert list(before.code) == [own()]
    own(factor=3.0)
    assert digest(wrapped) != before.digest


def test_what_is_shipped_has_no_such_entry(tiny):
    for name in ("median", "smartfl.aggregators.median:Median"):
        complete = Resolved.complete(tiny(aggregator={"name": name}))
        assert complete.code == {}
        assert "code" not in complete.tables()


def test_the_old_run_is_neither_taken_for_the_new_one_nor_lost(tiny, own, tmp_path):
    experiment = tiny(rounds=1, aggregator={"name": own()})
    path = default_path(experiment, tmp_path)
    execute(experiment, path, executor="serial")
    own(factor=0.5)
    assert default_path(experiment, tmp_path) != path
    with pytest.raises(
        UserError, match=r"another experiment \(code\.own_rule_\d+:Mine = '\w{10}' there, '\w{10}' here"
    ):
        execute(experiment, path, executor="serial", resume=True)
    assert Ledger([tmp_path]).find(Resolved.complete(experiment)) is None
    own()
    assert Ledger([tmp_path]).find(Resolved.complete(experiment)).finished


def test_a_record_from_before_code_was_told_of_is_still_found(tiny, own, tmp_path):
    experiment = tiny(rounds=1, aggregator={"name": own()})
    path = default_path(experiment, tmp_path)
    execute(experiment, path, executor="serial")
    file = path / "experiment.toml"
    file.write_text(file.read_text().partition("[code]")[0])
    own(factor=0.5)
    assert Ledger([tmp_path]).find(Resolved.complete(experiment)).finished
    assert execute(experiment, path, executor="serial", resume=True).rounds == 1


def test_reading_a_strangers_experiment_runs_nothing(tmp_path):
    """Its checksum is that of what was written down, not of what the name would load."""
    tables = {"aggregator": {"name": "does_not_exist:Rule"}, "code": {"does_not_exist:Rule": "0123456789"}}
    assert Experiment.of(tables).digest != Experiment.of(tables | {"code": {}}).digest


def test_compare_runs_an_edited_rule_again(smartfl, tiny_tables):
    (smartfl.directory / "mine.py").write_text(
        "from smartfl.aggregators import Uniform\nclass Mine(Uniform):\n    pass\n"
    )
    file = smartfl.write(tiny_tables(rounds=1))
    command = ("compare", file, "--aggregators", "mine:Mine", "--out", "all")
    for runs in (1, 1):
        assert smartfl(*command).returncode == 0
        assert len(list(smartfl.directory.glob("all/*/result.json"))) == runs
    with (smartfl.directory / "mine.py").open("a") as edited:
        edited.write("    def aggregate(self, updates, server):\n        raise ArithmeticError('edited')\n")
    assert "edited" in smartfl(*command).stderr
