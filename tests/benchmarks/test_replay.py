"""A recorded round is what the server had, and can be judged again."""

from __future__ import annotations

import pytest
import torch

from smartfl.experiment.schema import Experiment
from smartfl.simulation import Simulation

EXPERIMENT = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 10, "alpha": 1.0, "proxy": {"size": 64}},
    "model": {"name": "logistic"},
    "client": {"participation": 1.0},
    "attack": {"name": "sign_flip", "rate": 0.3},
    "aggregator": {"name": "smartfl"},
}


@pytest.fixture(scope="module")
def replay(script):
    return script("replay")


@pytest.fixture(scope="module")
def recorded(replay, tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    replay.record(Experiment.of(EXPERIMENT), frozenset({1, 2}), folder)
    return {scene.round: scene for scene in replay.scenes(folder)}


def test_scenes_hold_the_rows_the_liars_and_the_memory(recorded):
    experiment = Experiment.of(EXPERIMENT)
    simulation = Simulation(experiment, executor="serial")
    next(iter(simulation))
    assert sorted(recorded) == [1, 2]
    for scene in recorded.values():
        assert {i for i, bad in zip(scene.updates.ids, scene.malicious, strict=True) if bad} == set(
            simulation.federation.malicious
        )
    assert torch.equal(recorded[2].updates.origin, simulation.state.vectors[0])
    assert recorded[1].memory == {}
    assert recorded[2].memory["ids"] == list(range(10))


def test_variants_are_judged_on_the_same_rows(replay, recorded):
    """Uniform averaging has the attackers' share; its accuracy is that of the mean row. SmartFL has less on them."""
    scene = recorded[2]
    uniform, smart = replay.compare(scene, ["uniform", "SmartFL"])
    assert uniform["malicious_mass"] == pytest.approx(0.3)
    assert uniform["accuracy"] == round(replay.accuracy(scene, scene.updates.matrix.mean(dim=0)), 4)
    assert smart["malicious_mass"] < 0.1
    assert smart["proxy_loss"] < uniform["proxy_loss"]
    assert "| digits, α 1, sign_flip 0.3, round 2 |" in replay.table([uniform, smart])


def test_a_summary_has_means_over_rounds(replay):
    def line(variant: str, rate: float, accuracy: float, mass: float | None) -> dict[str, object]:
        return {
            "dataset": "digits",
            "variant": variant,
            "rate": rate,
            "accuracy": accuracy,
            "malicious_mass": mass,
        }

    lines = [line("a", 0.4, 0.5, 0.2), line("a", 0.7, 0.6, 0.4), line("a", 0.0, 0.9, 0.0), line("b", 0.0, 0.8, None)]
    assert replay.summary(lines).splitlines()[0] == "| | digits, attackers | digits, no attack |"
    assert replay.summary(lines).splitlines()[2:] == ["| a | 55.0 (0.30) | 90.0 |", "| b | – | 80.0 |"]
