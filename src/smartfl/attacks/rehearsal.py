"""A private copy of the server, on which an attacker tries out what it might send."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from smartfl.aggregators.fedavg import FedAvg
from smartfl.attacks.base import send
from smartfl.errors import UserError
from smartfl.rng import seeded
from smartfl.types import Proxy, Rule, Server, Updates

Damage = Callable[[Tensor], float]
WORST = sys.float_info.max


def at(samples: Proxy, index: Tensor, where: torch.device) -> Proxy:
    """The samples at ``index``, on the device ``where``."""
    labels = None if samples.labels is None else samples.labels[index.to(samples.labels.device)].to(where)
    return replace(samples, inputs=samples.inputs[index.to(samples.inputs.device)].to(where), labels=labels)


def halves(
    samples: Proxy, most: int, held_out: int, generator: torch.Generator, where: torch.device
) -> tuple[Proxy, Proxy]:
    """A random stand-in for the proxy data, at most ``most`` samples and half of them, and others to judge by."""
    order = torch.randperm(len(samples), generator=generator)
    cut = min(most, len(samples) // 2)
    return at(samples, order[:cut], where), at(samples, order[cut : cut + held_out], where)


def loss_on(updates: Updates, model: nn.Module, judges: Proxy, measure: Literal["loss", "error"]) -> Damage:
    """How bad a global model (d,) is on ``judges``: cross-entropy, or the share of errors; not finite is worst."""
    labels = judges.labels
    assert labels is not None

    @torch.no_grad()
    def damage(vector: Tensor) -> float:
        logits = updates.spec.functional_call(model.eval(), vector, judges.inputs)
        if not torch.isfinite(logits).all():
            return WORST
        if measure == "error":
            return float((logits.argmax(dim=-1) != labels).to(torch.float64).mean())
        loss = float(cross_entropy(logits.to(torch.float64), labels))
        return loss if math.isfinite(loss) else WORST

    return damage


def progress_lost(updates: Updates, mean: Tensor) -> Damage:
    """Without model or samples: how far the step of a global model goes against the benign ``mean`` (P,)."""
    size = updates.spec.num_parameters
    unit = mean.to(torch.float64) / max(float(mean.norm()), torch.finfo(mean.dtype).tiny)

    def damage(vector: Tensor) -> float:
        lost = -float((vector[:size] - updates.origin[:size]).to(torch.float64) @ unit)
        return lost if math.isfinite(lost) else WORST

    return damage


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The round as it would go if the malicious clients sent certain rows.

    The rule is copied before every call, so that one with state never learns of it; every call draws the same random
    numbers, so that two rehearsals differ in the rows alone.  A rule that cannot run on what the attacker has (it asks
    for proxy data, say) is taken for FedAvg.
    """

    updates: Updates
    malicious: Tensor
    rule: Rule
    server: Server
    seed: int
    damage: Damage

    def __call__(self, deltas: Tensor) -> float:
        """The damage if the malicious clients report w^t + ``deltas`` (k, P) or (P,)."""
        server = replace(self.server, generator=torch.Generator().manual_seed(self.seed))
        updates = send(self.updates, self.malicious, deltas)
        with seeded(self.seed):
            try:
                result = deepcopy(self.rule)(updates, server)
            except UserError:
                result = FedAvg()(updates, server)
        return self.damage(result.vector)
