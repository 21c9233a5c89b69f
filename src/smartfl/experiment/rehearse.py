"""A rule tried before a run leaves anything behind."""

from __future__ import annotations

import torch
from torch import nn

from smartfl.errors import UserError
from smartfl.experiment.build import planned_rows
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.rng import seeded
from smartfl.types import Proxy, Rule, Server, Updates


def rehearse(experiment: Experiment, rule: Rule) -> None:
    """Run ``rule`` once on a toy cohort of the planned size, so that an invalid f fails before anything is written."""
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
        rule(updates, Server(model=model, proxy=proxy, generator=generator, num_clients=experiment.data.clients))
    except UserError as error:
        raise UserError(f"aggregator '{experiment.aggregator.name}': {error}") from error
