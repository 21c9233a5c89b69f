"""Everything that an experiment names is built once."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import smartfl.experiment.build as building
from smartfl.cli import main
from smartfl.errors import UserError
from smartfl.experiment.files import write_experiment
from smartfl.experiment.resolved import Resolved
from smartfl.simulation import Simulation


@pytest.fixture
def built(monkeypatch):
    """How often each kind of thing was built."""
    count: Counter[str] = Counter()
    build = building.build

    def counted(kind, *arguments, **options):
        count[kind] += 1
        return build(kind, *arguments, **options)

    monkeypatch.setattr(building, "build", counted)
    return count


def test_a_run_from_the_command_line_builds_each_thing_once(built, tiny, tmp_path, monkeypatch):
    """Who trains builds the algorithm, the attack and the models for itself: here that is this process as well."""
    monkeypatch.chdir(tmp_path)
    experiment = tiny(rounds=1, attack={"name": "label_flip", "rate": 0.25})
    (tmp_path / "e.toml").write_text(write_experiment(experiment))
    with pytest.raises(SystemExit) as ended:
        main(["run", "e.toml", "--executor", "serial"])
    assert ended.value.code == 0
    assert built == {"aggregators": 1, "attacks": 2, "clients": 2, "models": 2}


def test_what_is_resolved_stays_as_it_is(tiny):
    resolved = Resolved.of(tiny())
    assert Resolved.of(resolved) is resolved
    assert Resolved.of(resolved.experiment).experiment == resolved.experiment
    assert Resolved.complete(tiny()) == resolved.experiment


@pytest.mark.parametrize("aggregator", [{"name": "fedavgm"}, {"name": "smartfl", "server_epochs": 2}])
def test_two_simulations_of_one_resolved_experiment_remember_nothing_of_each_other(tiny, aggregator):
    """A rule with a velocity or a memory begins anew, as does one for a second architecture."""
    resolved = Resolved.of(tiny(aggregator=aggregator, attack={"name": "omniscient", "rate": 0.25}))
    vectors = []
    for _ in range(2):
        simulation = Simulation(resolved, executor="serial")
        simulation.run()
        vectors.append(simulation.state.vectors[0])
    assert torch.equal(*vectors)
    assert resolved.new_rules()[0].state_dict() == resolved.rule.state_dict()
    first, second = Resolved.of(tiny(model=[{"name": "mlp", "hidden": [8]}] * 2)).new_rules()
    assert first is not second


def test_a_rule_screens(tiny, monkeypatch, tmp_path):
    (tmp_path / "bare_rule.py").write_text("class Bare:\n    needs_proxy = 'no'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"aggregator\.name = 'bare_rule:Bare' must make a .*Aggregator"):
        Resolved.of(tiny(aggregator={"name": "bare_rule:Bare"}))
