"""An experiment resolved: every default written out, every name built, and all of it checked, once."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from smartfl.attacks.base import Attack
from smartfl.clients.base import ClientAlgorithm
from smartfl.clients.training import Recipe
from smartfl.errors import UserError
from smartfl.experiment.build import build_algorithm, build_attack, build_recipe, build_rule
from smartfl.experiment.own_code import own_code
from smartfl.experiment.rehearse import rehearse
from smartfl.experiment.schema import Experiment
from smartfl.types import Rule


@dataclass(frozen=True, eq=False)
class Resolved:
    """What a run is made from.

    experiment  with every default of its rule, attack and client algorithm, so that a run directory says all, and a
                changed default changes the digest
    rule        the rule as new; one that is used is a copy (``new_rules``), as it may remember rounds
    attack      the attack as new, likewise; None where nobody attacks
    algorithm   the client algorithm, which keeps nothing itself
    recipe      the clients' optimiser settings
    """

    experiment: Experiment
    rule: Rule
    attack: Attack | None
    algorithm: ClientAlgorithm
    recipe: Recipe

    @classmethod
    def of(cls, experiment: Experiment | Resolved) -> Resolved:
        """Resolve an experiment; one that is resolved stays as it is.  A mistake is told before anything is written."""
        if isinstance(experiment, Resolved):
            return experiment
        found = cls._built(experiment)
        stateful = found.algorithm.state_size(1, found.recipe.new_optimizer()) > 0
        if stateful and len(experiment.model) > 1:
            raise UserError(
                f"client.algorithm = '{experiment.client.algorithm}' keeps a state per parameter and accepts one "
                f"model, got {len(experiment.model)}"
            )
        rehearse(experiment, deepcopy(found.rule))
        return found

    @classmethod
    def complete(cls, experiment: Experiment) -> Experiment:
        """The experiment with every default written out, without trying the rule."""
        return cls._built(experiment).experiment

    @classmethod
    def _built(cls, experiment: Experiment) -> Resolved:
        rule, attack, algorithm = build_rule(experiment), build_attack(experiment), build_algorithm(experiment)
        tables = experiment.tables()
        tables["aggregator"] = _written_out(rule, tables["aggregator"])
        if attack is not None:
            tables["attack"] |= _defaults(attack)
        tables["client"] |= _defaults(algorithm)
        tables["code"] = own_code(tables)
        return cls(Experiment.of(tables), rule, attack, algorithm, build_recipe(experiment))

    def new_rules(self) -> list[Rule]:
        """A rule for every architecture, each with a memory of its own."""
        return [deepcopy(self.rule) for _ in self.experiment.model]

    def new_attack(self) -> Attack | None:
        """The attack, with a memory of its own."""
        return deepcopy(self.attack)


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
