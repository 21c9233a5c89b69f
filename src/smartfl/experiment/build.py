"""From names in an experiment to objects: rule, attack, client algorithm, models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn

from smartfl.attacks.base import Attack
from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.training import Recipe
from smartfl.errors import UserError
from smartfl.experiment.own_code import own_code
from smartfl.experiment.schema import AttackSettings, ClientSettings, Experiment, Named
from smartfl.flat import FlatSpec
from smartfl.registry import build, parameters, resolve
from smartfl.rng import seeded
from smartfl.screening import screened
from smartfl.types import Proxy, Rule, Server, Updates


def build_rule(experiment: Experiment) -> Rule:
    """The aggregator; rules that assume a number of attackers get the attack's rate unless told otherwise."""
    named = experiment.aggregator
    settings = _with_fraction(named.name, named.settings, experiment.attack.rate)
    rule: Rule = build("aggregators", named.name, settings, "aggregator", key="aggregator.name")
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


def resolve_experiment(experiment: Experiment) -> Experiment:
    """The experiment with every default of its rule, attack and client algorithm written out, and checked.

    So that a run directory says all, and a changed default changes the digest.
    """
    stateful = build_algorithm(experiment).state_size(1, build_recipe(experiment).new_optimizer()) > 0
    if stateful and len(experiment.model) > 1:
        raise UserError(
            f"client.algorithm = '{experiment.client.algorithm}' keeps a state per parameter and accepts one model, "
            f"got {len(experiment.model)}"
        )
    _rehearse(experiment)
    return complete_experiment(experiment)


def complete_experiment(experiment: Experiment) -> Experiment:
    """The experiment with every default written out, without trying the rule."""
    rule, attack, algorithm = build_rule(experiment), build_attack(experiment), build_algorithm(experiment)
    tables = experiment.tables()
    tables["aggregator"] = _written_out(rule, tables["aggregator"])
    if attack is not None:
        tables["attack"] |= _defaults(attack)
    tables["client"] |= _defaults(algorithm)
    tables["code"] = own_code(tables)
    return Experiment.of(tables)


def _written_out(rule: object, table: dict[str, Any]) -> dict[str, Any]:
    """The table of a rule with its defaults, and those of the rule inside it."""
    inner, given = getattr(rule, "rule", None), table.get("rule")
    nested = {"rule": _written_out(inner, given)} if inner is not None and isinstance(given, dict) else {}
    return _defaults(rule) | table | nested


def _defaults(thing: object) -> dict[str, Any]:
    """The plain settings of a dataclass instance."""
    if not is_dataclass(thing):
        return {}
    values = {f.name: getattr(thing, f.name) for f in fields(thing) if f.init}
    plain = (bool, int, float, str, list, tuple)
    finite = {k: v for k, v in values.items() if not isinstance(v, float) or math.isfinite(v)}  # others stay unsaid
    return {k: list(v) if isinstance(v, tuple) else v for k, v in finite.items() if isinstance(v, plain)}


def _rehearse(experiment: Experiment) -> None:
    """Run the rule once on a toy cohort of the planned size, so that an invalid f fails before anything is written."""
    rule = build_rule(experiment)
    several = len(experiment.model) > 1
    if several and hasattr(rule, "cohort_weights"):
        raise UserError(
            f"aggregator.name = '{experiment.aggregator.name}' chooses cohorts for one model, not for several"
        )
    if several and experiment.attack.name == "mimic":
        raise UserError("attack.name = 'mimic' follows one direction and accepts one model")
    if rule.needs_proxy != "no" and experiment.data.proxy.size == 0:
        raise UserError(f"data.proxy.size = 0, but the aggregator '{experiment.aggregator.name}' needs proxy data")
    cohort = planned_rows(experiment)
    generator = torch.Generator().manual_seed(0)
    with seeded(0, "rehearsal"):
        model = nn.Linear(1, 2)
    labels = None if rule.needs_proxy == "unlabelled" else torch.tensor([0, 1, 0, 1])
    proxy = None if rule.needs_proxy == "no" else Proxy(torch.randn(4, 1, generator=generator), labels, 2)
    rows = torch.randn(cohort, 4, generator=generator)
    updates = Updates.of(rows, spec=FlatSpec.of(model))
    try:
        server = Server(model=model, proxy=proxy, generator=generator, num_clients=experiment.data.clients)
        screened(rule, updates, server)
    except UserError as error:
        raise UserError(f"aggregator '{experiment.aggregator.name}': {error}") from error


def with_rule(experiment: Experiment, name: str) -> Experiment:
    """The same experiment under another aggregator (its own settings only where the name stays)."""
    if name == experiment.aggregator.name:
        return experiment
    return experiment.model_copy(update={"aggregator": Named(name=name)})
