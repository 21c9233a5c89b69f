"""From names in an experiment to objects: rule, attack, client algorithm, models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from smartfl.aggregators.base import Aggregator
from smartfl.attacks.base import Attack
from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.training import Recipe
from smartfl.errors import UserError
from smartfl.experiment.schema import AttackSettings, ClientSettings, Experiment, Named
from smartfl.registry import build, parameters, resolve
from smartfl.rng import seeded
from smartfl.types import Rule


def build_rule(experiment: Experiment) -> Rule:
    """The aggregator; rules that assume a number of attackers get the attack's rate unless told otherwise."""
    named = experiment.aggregator
    settings = _with_fraction(named.name, named.settings, experiment.attack.rate)
    rule: Rule = build("aggregators", named.name, settings, "aggregator", key="aggregator.name")
    if not isinstance(rule, Aggregator):
        raise UserError(
            f"aggregator.name = '{named.name}' must make a smartfl.aggregators.base.Aggregator, which screens what it "
            f"gets, got a {type(rule).__name__}"
        )
    return rule


def _with_fraction(name: str, settings: Mapping[str, Any], rate: float) -> dict[str, Any]:
    given = dict(settings)
    accepted = parameters(resolve("aggregators", name, "aggregator.name"))
    if "fraction" in accepted and not given.keys() & {"f", "b", "fraction"}:
        given["fraction"] = rate
    if isinstance(inner := given.get("rule"), Mapping) and "name" in inner:
        table = {k: v for k, v in inner.items() if k != "name"}
        given["rule"] = {"name": inner["name"], **_with_fraction(inner["name"], table, rate)}
    return given


def build_attack(experiment: Experiment) -> Attack | None:
    """The attack, or None."""
    named = experiment.attack
    if named.name == "none":
        if named.settings:
            raise UserError(f"attack.{next(iter(named.settings))} is set, but attack.name is 'none'")
        return None
    attack: Attack = build(
        "attacks", named.name, named.settings, "attack", key="attack.name", general=list(AttackSettings.model_fields)
    )
    return attack


def build_algorithm(experiment: Experiment) -> ClientAlgorithm:
    """The client algorithm."""
    client = experiment.client
    algorithm: ClientAlgorithm = build(
        "clients",
        client.algorithm,
        client.settings,
        "client",
        key="client.algorithm",
        general=list(ClientSettings.model_fields),
    )
    return algorithm


def build_recipe(experiment: Experiment) -> Recipe:
    """The clients' optimiser settings."""
    c = experiment.client
    return Recipe(c.optimizer, c.lr, c.momentum, c.weight_decay, c.batch_size, c.epochs, experiment.data.augment)


def build_models(experiment: Experiment, input_shape: tuple[int, ...], num_classes: int) -> list[nn.Module]:
    """One freshly initialised module per architecture group, the same on every worker."""
    context = {"input_shape": input_shape, "num_classes": num_classes}
    models: list[nn.Module] = []
    for group, named in enumerate(experiment.model):
        with seeded(experiment.seed, "model", group):
            built = build("models", named.name, named.settings, "model", context, key="model.name")
        if not isinstance(built, nn.Module):
            raise UserError(f"model.name = '{named.name}' must make a torch.nn.Module, got a {type(built).__name__}")
        models.append(built)
    return models


def planned_rows(experiment: Experiment) -> int:
    """How many clients a rule may count on: m, or with G architectures, which are aggregated apart, ⌊m/G⌋.

    A round has fewer when a draw is uneven or clients own no samples; what the user set is then capped, not refused.
    """
    return max(1, experiment.cohort_size // len(experiment.model))


def with_rule(experiment: Experiment, name: str) -> Experiment:
    """The same experiment under another aggregator (its own settings only where the name stays)."""
    if name == experiment.aggregator.name:
        return experiment
    return experiment.model_copy(update={"aggregator": Named(name=name)})
