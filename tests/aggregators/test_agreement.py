"""The start of the search: clients whose updates lead downhill from the last global model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.agreement import agreeing, agreement
from smartfl.aggregators.hull import Hull
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates

ORIGIN = torch.tensor([1.0, 1.0])


def downhill(logits: Tensor, index: Tensor) -> Tensor:
    """3 w_0 + 4 w_1 on the identity: the gradient is (3, 4) everywhere."""
    return logits[index] @ torch.ones(1) @ torch.tensor([3.0, 4.0])


def cosines(*deltas: tuple[float, float]) -> Tensor:
    model = nn.Linear(2, 1, bias=False)
    updates = Updates.of(ORIGIN + torch.tensor(deltas), origin=ORIGIN, spec=FlatSpec.of(model))
    return agreement(Hull(updates, model, torch.eye(2)), updates, downhill)


def start(*deltas: tuple[float, float]) -> Tensor | None:
    return agreeing(cosines(*deltas))


def test_cosines_by_hand():
    """With −g = −(3, 4)/5: the same way, 3/5 of it, the opposite of that, across, and no update at all."""
    found = cosines((-3, -4), (-1, 0), (1, 0), (4, -3), (0, 0))
    assert found.tolist() == pytest.approx([1, 0.6, -0.6, 0, 0], abs=1e-6)


def test_weights_are_cosines_with_the_way_down():
    """cos((−3, −4), −g) = 1, cos((−1, 0), −g) = 3/5; uphill, across and not at all are 0."""
    p = start((-3, -4), (-1, 0), (1, 0), (4, -3), (0, 0))
    assert p is not None
    assert p.tolist() == pytest.approx([5 / 8, 3 / 8, 0, 0, 0], abs=1e-6)


def test_length_does_not_count():
    p = start((-1e-3, 0), (-1e3, 0))
    assert p is not None
    assert p.tolist() == pytest.approx([0.5, 0.5], abs=1e-3)  # 1 + 1e-3 has four digits in float32


def test_nobody_agrees():
    assert start((1, 0), (0, 1)) is None


def test_a_gradient_that_is_not_finite_agrees_with_nobody():
    model = nn.Linear(2, 1, bias=False)
    updates = Updates.of(torch.eye(2), spec=FlatSpec.of(model))
    hull = Hull(updates, model, torch.eye(2))
    found = agreement(hull, updates, lambda logits, index: downhill(logits, index) * torch.inf)
    assert found.tolist() == [0, 0]
    assert agreeing(found) is None


def test_a_dead_average_does_not_hold_the_search():
    """Two honest clients of eight; the six others switch off every hidden unit, so that at the average of all of them
    the proxy loss does not depend on who gets the weight.  (Without memory, which would know the six by their camp.)"""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    spec = FlatSpec.of(model)
    inputs = torch.randn(60, 5)
    labels = (inputs @ torch.randn(5, 3)).argmax(dim=1)
    origin = spec.flatten(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(50):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    honest = spec.flatten(model)
    dead = origin - (honest - origin)
    dead[40:48] -= 20  # the biases of the hidden units
    rows = torch.stack([honest] * 2 + [dead] * 6)
    updates = Updates.of(rows, origin=origin, spec=spec)

    def attackers(**settings: object) -> float:
        server = Server(model=model, proxy=Proxy(inputs, labels, 3), generator=torch.Generator().manual_seed(0))
        rule = SmartFL(server_epochs=5, mistrust=0.0, **settings)
        return float(rule(updates, server).coefficients[2:].sum())

    assert attackers() < 0.05
    assert attackers(init="fedavg") > 0.5


def test_agreement_is_not_believed_where_its_loss_is_higher(monkeypatch):
    """The one client that agrees is the opposite of the three that are right: FedAvg weights have the lowest loss."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3, bias=False)
    spec, inputs, good = FlatSpec.of(model), torch.randn(60, 5), torch.randn(3, 5)
    proxy = Proxy(inputs, (inputs @ good.T).argmax(dim=1), 3)
    updates = Updates.of(torch.stack([good.reshape(-1)] * 3 + [-good.reshape(-1)]), spec=spec)
    wrong = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    monkeypatch.setattr("smartfl.aggregators.smartfl.agreeing", lambda *_: wrong)

    def start(init: str) -> list[float]:
        rule = SmartFL(server_epochs=1, lr=1e-12, init=init, restraint=0.0)  # a search that does not move
        return rule(updates, Server(model=model, proxy=proxy)).coefficients.tolist()

    assert start("best") == pytest.approx([0.25] * 4, abs=1e-6)
    assert start("agreement") == pytest.approx([0, 0, 0, 1], abs=1e-6)


def test_the_search_may_start_halfway(monkeypatch):
    """One client knows the first feature, the other the second; all reports are the first one's, the second agrees."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2, bias=False)
    inputs = torch.randn(60, 2)
    proxy = Proxy(inputs, (inputs.sum(dim=1) > 0).long(), 2)
    first, second = torch.tensor([[-3.0, 0.0, 3.0, 0.0], [0.0, -3.0, 0.0, 3.0]])  # logits ∓3x₁ and ∓3x₂
    updates = Updates.of(torch.stack([first, second]), torch.tensor([10.0, 0.0]), spec=FlatSpec.of(model))
    other = torch.tensor([0.0, 1.0], dtype=torch.float64)
    monkeypatch.setattr("smartfl.aggregators.smartfl.agreeing", lambda *_: other)
    found = SmartFL(server_epochs=1, lr=1e-12, restraint=0.0)(updates, Server(model=model, proxy=proxy))
    assert found.coefficients.tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
