"""The rules of benchmarks/ablation.py: each is SmartFL but for the part that it names."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.calibration import CalibratedLoss
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.smartfl import Task
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates

CAMPS = torch.tensor([0.4] * 12 + [-0.4] * 8)  # the last eight of twenty clients contradict the labels


@pytest.fixture(scope="module")
def ablation(script):
    return script("ablation")


@pytest.fixture(scope="module")
def scene():
    """Ten clients that know two of four classes each, two of them with all signs flipped; class 3 has no sample."""
    generator = torch.Generator().manual_seed(0)
    truth, inputs = torch.randn(4, 6, generator=generator), torch.randn(48, 6, generator=generator)
    labels = (inputs @ truth.T)[:, :3].argmax(dim=1)
    known = torch.stack([torch.isin(torch.arange(4), torch.randperm(4, generator=generator)[:2]) for _ in range(10)])
    weights = truth * known[:, :, None] + 0.3 * torch.randn(10, 4, 6, generator=generator)
    weights[8:] *= -1
    rows = torch.cat([0.3 * weights.reshape(10, -1), torch.zeros(10, 4)], dim=1)
    model = nn.Linear(6, 4)
    updates = Updates.of(rows, origin=torch.zeros(28), spec=FlatSpec.of(model))
    return lambda rule: (
        rule(
            updates,
            Server(model=model, proxy=Proxy(inputs, labels, 4), generator=torch.Generator().manual_seed(1)),
        ).coefficients
    )


def test_without_a_part_that_acts_here_it_is_smartfl(ablation, scene):
    """No client is longer than twice the median, and the mix is better than the average by any test."""
    expected = scene(SmartFL(server_epochs=40))
    assert torch.equal(scene(ablation.Unlimited(server_epochs=40)), expected)
    assert torch.equal(scene(ablation.Ablated(part="paired test", server_epochs=40, layered=False)), expected)


def test_every_other_part_changes_the_weights_and_keeps_them_on_the_simplex(ablation, scene):
    """Without memory, which is against the flipped ones as some parts are."""
    expected = scene(SmartFL(server_epochs=40, mistrust=0.0))
    for part in set(get_args(ablation.Part)) - {
        "paired test",
        "contradiction",
        "damage",
        "charge",
        "rise",
        "alone",
        "breadth",
        "left out",
    }:
        p = scene(ablation.Ablated(part=part, server_epochs=40, mistrust=0.0, layered=False))
        assert float(p.sum()) == pytest.approx(1), part
        assert float(p.min()) >= 0, part
        assert not torch.equal(p, expected), part


def test_a_memory_without_one_kind_of_evidence(ablation):
    """Of twenty clients client 0 did damage, and the last eight contradict."""

    def held(**settings: str) -> list[float]:
        past = ablation.Ablated(**settings)._past
        past.learn(range(20), CAMPS, torch.ones_like(CAMPS))
        past.observe([0, 1, 19], torch.tensor([2.0, 0.0, 0.0]))
        return (past.of([0, 1, 19]) > 0.5).tolist()

    assert held(part="centring") == [True, False, True]
    assert held(part="contradiction") == [True, False, False]
    assert held(part="damage") == [False, False, True]


def test_contradiction_charged_as_damage(ablation):
    """Client 19 contradicts; at a scale of 8 it pays eight times as much as for damage."""
    unknown, labels, model = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), nn.Linear(1, 2, bias=False)
    loss = CalibratedLoss(unknown, labels, torch.ones(1), torch.zeros(2), price=1.0)
    loss.scale = 8.0
    hull = Hull(Updates.of(torch.eye(2), spec=FlatSpec.of(model)), model, torch.ones(1, 1))
    for part, charged in (("charge", 0.5), ("centring", 4.0)):
        rule = ablation.Ablated(part=part)
        rule._past.learn(range(20), CAMPS, torch.ones_like(CAMPS))
        assert rule._dear(hull, loss, [0, 19]).tolist() == [0, charged]


def test_half_of_the_clients_are_not_left_by_themselves(ablation):
    """Clients 0 to 11 know what the model knows, the others lead the other way: with them the search is another one."""
    model = nn.Linear(1, 2, bias=False)
    rows = torch.cat([torch.linspace(1, 1.5, 12), -torch.ones(8)])[:, None] * torch.tensor([1.0, -1.0])
    updates = Updates.of(rows, origin=torch.tensor([1.0, -1.0]), spec=FlatSpec.of(model))
    left_out = {}
    for part, breadth in (("alone", 1.0), ("centring", 1.0), ("centring", 0.1), ("breadth", 0.1)):
        rule = ablation.Ablated(part=part, server_epochs=2)
        for _ in range(4):
            rule._past.learn(range(20), CAMPS, torch.full_like(CAMPS, breadth))
        server = Server(model=model, proxy=Proxy(torch.ones(8, 1), torch.zeros(8, dtype=torch.int64), 2))
        left_out[part, breadth] = rule(updates, server).info.get("left_out")
    assert list(left_out.values()) == [None, 8, None, 8]


def test_who_contradicts_is_left_out_and_has_no_say_in_what_the_others_share(ablation):
    """Clients 2 to 9 lead uphill and are the majority; of the other two, the better one still wins."""
    model = nn.Linear(2, 2, bias=False)
    rows = torch.tensor([[1.0, 0, -1, 0], [0.9, 0.5, -0.9, -0.5], *8 * [[-1.0, 0, 1, 0]]])
    updates = Updates.of(rows, origin=torch.zeros(4), spec=FlatSpec.of(model))
    inputs = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).repeat(32, 1)
    proxy = Proxy(inputs, torch.tensor([0, 1]).repeat(32), 2)
    rule = ablation.Ablated(part="left out", server_epochs=40, restraint=0.0, layered=False)
    p = rule(updates, Server(model=model, proxy=proxy, generator=torch.Generator().manual_seed(0))).coefficients
    assert p[2:].tolist() == [0] * 8
    assert p[0] > 0.9


def test_drawn_back_though_the_loss_rises(ablation):
    """Clients 0 and 1 send the model back as it was; 2 and 3 make it worse, by less than chance would."""
    model = nn.Linear(1, 2, bias=False)
    rows = torch.tensor([[2.0, -2.0], [2.0, -2.0], [1.8, -1.8], [1.8, -1.8]])
    updates = Updates.of(rows, origin=torch.tensor([2.0, -2.0]), spec=FlatSpec.of(model))
    server = Server(model=model, proxy=Proxy(torch.ones(8, 1), torch.zeros(8, dtype=torch.int64), 2))
    p, back = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64), {}
    for part in ("rise", "centring"):
        rule = ablation.Ablated(part=part)
        hull = Hull(updates, model, server.proxy.inputs)
        before = rule._loss(hull, server.proxy).fit(hull.logits(p))
        task = Task(server.proxy, torch.Generator(), before, 1)
        back[part] = rule._find(hull, p, task, range(4)).info["drawn_back"]
    assert back == {"rise": 1.0, "centring": 0.0}


def test_a_factor_never_leads_away_from_zero_so_mirror_descent_does_not_start_there(ablation):
    p, mirror = torch.tensor([0.0, 0.5, 0.5]), ablation.Mirror(0.1)
    for _ in range(100):
        mirror.step(p, torch.tensor([-5.0, 1.0, 1.0]))
    assert p[0] == 0


def test_candidates_have_one_weight_a_client(ablation):
    with pytest.raises(UserError, match='part = "mirror" needs layered = false'):
        ablation.Ablated(part="mirror")
    assert "floor" not in ablation.CANDIDATES
    assert "paired test" in ablation.CANDIDATES
