from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.median import Median
from smartfl.attacks.rehearsal import WORST, Rehearsal, halves, loss_on, progress_lost
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Aggregate, NeedsProxy, Proxy, Rule, Server, Updates

CPU = torch.device("cpu")


def rehearsal(rule: Rule) -> Rehearsal:
    updates = Updates.of([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    malicious = torch.tensor([False, False, True])
    return Rehearsal(updates, malicious, rule, Server(), 5, progress_lost(updates, torch.tensor([2.0, 0.0])))


def test_damage_is_what_the_rule_makes_of_the_rows() -> None:
    """Benign 1, 1; the attacker sends −5.  Median 1 → progress lost −1.  A rule that needs what the attacker
    lacks counts as FedAvg: (1 + 1 − 5)/3 = −1 → lost 1."""

    class Demanding(Median):
        def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
            raise UserError("no proxy data")

    assert rehearsal(Median())(torch.tensor([-5.0, 0.0])) == pytest.approx(-1)
    assert rehearsal(Demanding())(torch.tensor([-5.0, 0.0])) == pytest.approx(1)


@dataclass
class Counting(Aggregator):
    """A rule with state and noise: a random number in coordinate 0, the number of calls in coordinate 1."""

    needs_proxy: ClassVar[NeedsProxy] = "no"
    calls: list[int] = field(default_factory=list)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        assert server is not None
        self.calls.append(1)
        noise = torch.rand(1, generator=server.generator) + torch.rand(1)
        return Aggregate(torch.cat([noise, torch.tensor([float(len(self.calls))])]))


def test_rules_with_state_and_noise_are_not_touched() -> None:
    rule = Counting()
    trial = rehearsal(rule)
    before = torch.random.get_rng_state()
    first, second = trial(torch.zeros(2)), trial(torch.zeros(2))
    assert first == second
    assert rule.calls == []
    assert torch.equal(torch.random.get_rng_state(), before)


def test_halves_are_disjoint_and_capped() -> None:
    samples = Proxy(torch.arange(10.0)[:, None], torch.arange(10), 10)
    stand_in, judges = halves(samples, 3, 4, torch.Generator().manual_seed(0), CPU)
    assert (len(stand_in), len(judges)) == (3, 4)
    both = torch.cat([stand_in.inputs, judges.inputs]).flatten()
    assert len(both.unique()) == 7
    assert torch.equal(both.to(torch.int64), torch.cat([stand_in.labels, judges.labels]))  # type: ignore[list-item]
    stand_in, judges = halves(samples, 128, 512, torch.Generator().manual_seed(0), CPU)
    assert (len(stand_in), len(judges)) == (5, 5)
    assert halves(replace(samples, labels=None), 3, 4, torch.Generator(), CPU)[0].labels is None


def test_loss_and_error_by_hand() -> None:
    """Logits (w, 0) for x = 1 with w = ln 3, labels 0 and 1: p = (¾, ¼) → loss (−ln ¾ − ln ¼)/2 = 0.8370, error ½."""
    model = nn.Linear(1, 2, bias=False)
    updates = Updates.of(torch.zeros(1, 2), spec=FlatSpec.of(model))
    judges = Proxy(torch.ones(2, 1), torch.tensor([0, 1]), 2)
    vector = torch.tensor([3.0, 1.0]).log()
    assert loss_on(updates, model, judges, "loss")(vector) == pytest.approx(0.836988, abs=1e-5)
    assert loss_on(updates, model, judges, "error")(vector) == 0.5
    for measure in ("loss", "error"):
        assert loss_on(updates, model, judges, measure)(torch.tensor([torch.nan, 0.0])) == WORST
    assert progress_lost(updates, torch.ones(2))(torch.tensor([torch.inf, 0.0])) == WORST
