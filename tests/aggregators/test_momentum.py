"""Momentum of which the server's samples choose the length."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smartfl.aggregators.batchnorm import reestimate
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedavgm import FedAvgM
from smartfl.aggregators.momentum import Momentum
from smartfl.aggregators.smartfl import SmartFL
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.registry import build
from smartfl.types import Proxy, Server, Updates

PLANE = nn.Linear(2, 2, bias=False)
CORNERS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def row(across: float, up: float) -> list[float]:
    """The model of PLANE whose first logit exceeds the second by (``across``·x + ``up``·y)/8: small, so that the best
    scale is above 1 and only the direction counts.  (In eighths the arithmetic is exact.)"""
    return [across / 16, up / 16, -across / 16, -up / 16]


def asked_about(axis: int) -> Server:
    """Corners of a square, of which three of four copies are labelled by the sign of one coordinate, one against it."""
    right = (CORNERS[:, axis] < 0).long()
    labels = torch.cat([right, right, right, 1 - right])
    return Server(model=PLANE, proxy=Proxy(CORNERS.repeat(4, 1), labels, 2))


def second_round(rule: Momentum, server: Server) -> list[float]:
    """After a first round that went one step across, a second one whose clients want to go up."""
    spec = FlatSpec.of(PLANE)
    rule(Updates.of([row(1, 0)], origin=torch.zeros(4), spec=spec), server)
    return rule(Updates.of([row(1, 1)], origin=torch.tensor(row(1, 0)), spec=spec), server).vector.tolist()


def test_where_the_last_step_was_right_it_is_taken_again_by_hand():
    """Only x counts, so of (1 + τ, 1) the largest τ points best: (1, 1) + ¾ (1, 0)."""
    assert second_round(Momentum(FedAvg()), asked_about(0)) == row(1.75, 1)


def test_where_the_last_step_was_wrong_it_is_not_by_hand():
    """Only y counts, so of (1 + τ, 1) the smallest τ points best: (1, 1)."""
    assert second_round(Momentum(FedAvg()), asked_about(1)) == row(1, 1)


def test_the_length_has_the_lowest_loss_at_its_best_scale():
    """Labels by 3x + 2y with mistakes: the loss of every length over many scales, computed here."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 2, generator=generator)
    labels = (torch.rand(400, generator=generator) > torch.sigmoid(3 * inputs[:, 0] + 2 * inputs[:, 1])).long()
    weights = 1 / torch.bincount(labels)[labels].double()
    losses = {}
    for tau in (0, 0.25, 0.5, 0.75):
        logits = (inputs @ torch.tensor(row(1 + tau, 1)).view(2, 2).T).double()
        each = [F.cross_entropy(s * logits, labels, reduction="none") @ weights for s in torch.logspace(0, 3, 2000)]
        losses[tau] = float(min(each))
    best = min(losses, key=lambda tau: losses[tau])
    assert best == 0.5  # 3 : 2 is (1 + ½) : 1
    found = second_round(Momentum(FedAvg()), Server(model=PLANE, proxy=Proxy(inputs, labels, 2)))
    assert found == row(1 + best, 1)


def test_a_step_includes_the_momentum_of_the_one_before_by_hand():
    """From (2.75, 1), where the second round's step (1, 1) + ¾ (1, 0) led: up by 1, and ¾ (1.75, 1) of momentum."""
    rule, spec, server = Momentum(FedAvg()), FlatSpec.of(PLANE), asked_about(0)
    rule(Updates.of([row(1, 0)], origin=torch.zeros(4), spec=spec), server)
    second = rule(Updates.of([row(2, 1)], origin=torch.tensor(row(1, 0)), spec=spec), server)
    assert second.vector.tolist() == row(2.75, 1)
    third = rule(Updates.of([row(2.75, 2)], origin=second.vector, spec=spec), server)
    assert third.vector.tolist() == row(2.75 + 0.75 * 1.75, 2 + 0.75)
    assert (second.info["momentum"], third.info["momentum"]) == (0.75, 0.75)


def test_the_first_round_is_the_rules_own(world):
    w = world()
    found, plain = Momentum(SmartFL())(w.updates, w.server()), SmartFL()(w.updates, w.server())
    assert torch.equal(found.vector, plain.vector)
    assert torch.equal(found.coefficients, plain.coefficients)
    assert found.info == {**plain.info, "momentum": 0.0}


def test_statistics_are_those_of_the_model_shipped(world):
    w = world(batchnorm=True)
    rule = Momentum(FedAvg())
    for _ in range(2):
        found = rule(w.updates, w.server())
        torch.testing.assert_close(
            found.vector, reestimate(w.model, w.updates.spec, found.vector, w.proxy.inputs), rtol=1e-6, atol=1e-6
        )


def test_a_longer_step_that_overflows_is_not_taken():
    """(1, 1) says nothing of the corner (1, −1), which any τ > 0 would mend; but 3e38 + τ·3e38 is infinite."""
    rule, spec, huge = Momentum(FedAvg()), FlatSpec.of(PLANE), 3e38 / row(1, 0)[0]
    server = Server(model=PLANE, proxy=Proxy(CORNERS / 10, (CORNERS[:, 0] < 0).long(), 2))
    rule(Updates.of([row(huge, 0)], origin=torch.zeros(4), spec=spec), server)
    found = rule(Updates.of([row(huge, huge)], origin=torch.tensor(row(huge, 0)), spec=spec), server)
    assert found.vector.tolist() == torch.tensor(row(huge, huge)).tolist()
    assert found.info["momentum"] == 0


def test_statistics_that_overflow_are_not_taken(world):
    """1e20 before a BatchNorm: its variance on the samples is infinite, and the rule's own statistics stay."""
    w = world(batchnorm=True)
    rows = w.updates.matrix.clone()
    rows[0, :12] *= 1e20
    updates = Updates.of(rows, origin=w.updates.origin, spec=w.updates.spec)
    assert torch.equal(Momentum(FedAvg())(updates, w.server()).vector, FedAvg()(updates).vector)


def test_the_state_survives_a_round_trip(world):
    w = world()
    rule, resumed = Momentum(FedAvgM()), Momentum(FedAvgM())
    assert rule.state_dict() == {}
    rule(w.updates, w.server())
    assert rule.state_dict().keys() == {"step", "rule.velocity"}
    resumed.load_state_dict({k: v.clone() for k, v in rule.state_dict().items()})
    assert torch.equal(rule(w.updates, w.server()).vector, resumed(w.updates, w.server()).vector)
    resumed.load_state_dict({})
    assert torch.equal(resumed(w.updates, w.server()).vector, Momentum(FedAvgM())(w.updates, w.server()).vector)


def test_a_round_without_a_valid_client_leaves_the_step():
    rule, server = Momentum(FedAvg()), asked_about(0)
    rule(Updates.of([row(1, 0)], origin=torch.zeros(4), spec=FlatSpec.of(PLANE)), server)
    before = rule.state_dict()["step"].clone()
    rule(Updates.of([[torch.nan] * 4], origin=torch.tensor(row(1, 0)), spec=FlatSpec.of(PLANE)), server)
    assert torch.equal(rule.state_dict()["step"], before)


def test_what_it_needs(world):
    assert Momentum(FedAvg()).needs_proxy == "labelled"
    with pytest.raises(UserError, match="Momentum needs labelled proxy data"):
        Momentum(FedAvg())(world().updates, world().unlabelled())
    table = {"rule": {"name": "smartfl", "server_epochs": 50}}
    assert build("aggregators", "momentum", table, "aggregator") == Momentum(SmartFL(server_epochs=50))
