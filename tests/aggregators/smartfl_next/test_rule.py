"""The rule made of the parts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from smartfl.aggregators.smartfl_next import SmartFLNext
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates

PLANE = nn.Linear(2, 2, bias=False)
SPEC = FlatSpec.of(PLANE)
CORNERS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
RIGHT = (CORNERS[:, 0] < 0).long()


def row(across: float, up: float) -> list[float]:
    """The model of PLANE whose first logit exceeds the second by ``across``·x + ``up``·y."""
    return [across / 2, up / 2, -across / 2, -up / 2]


def server(copies: int = 8) -> Server:
    """Samples labelled by the sign of x, one in eight against it, so that no finite step is too short."""
    labels = torch.cat([RIGHT] * (copies - 1) + [1 - RIGHT])
    return Server(model=PLANE, proxy=Proxy(CORNERS.repeat(copies, 1), labels, 2))


def updates(*rows: list[float], origin: list[float] | None = None, ids: list[int] | None = None) -> Updates:
    return Updates.of(list(rows), origin=origin or [0.0] * 4, spec=SPEC, ids=ids)


def test_the_client_that_agrees_with_the_samples_has_the_weight():
    found = SmartFLNext()(updates(row(1, 0), row(-1, 0), row(0, 1)), server())
    assert found.coefficients is not None
    assert found.coefficients.argmax() == 0
    assert found.coefficients[0] > 0.9


def test_short_steps_are_made_longer():
    """The best length of one client's step: the margin m with σ(m) = 7/8 is ln 7 = 1.95, at the nearest √2 power."""
    one = [row(0.25, 0)] * 2
    near, long = (SmartFLNext(length=on, repeat=False, penalty=0.0)(updates(*one), server()) for on in (False, True))
    assert near.info["length"] == 1.0
    assert near.vector.tolist() == pytest.approx(row(0.25, 0))
    assert long.info["length"] > 1
    assert long.vector.tolist() == pytest.approx(row(0.25 * long.info["length"], 0))


def test_the_last_step_is_taken_again_where_that_helps():
    first, second = updates(row(0.5, 0)), updates(row(0.5, 0.1), origin=row(0.5, 0))
    repeated, once = SmartFLNext(length=False), SmartFLNext(length=False, repeat=False)
    for rule in (repeated, once):
        rule(first, server())
    found = repeated(second, server())
    assert found.info["repeated"] == 0.75
    assert found.vector.tolist() == pytest.approx(row(0.5 + 0.75 * 0.5, 0.1))
    assert once(second, server()).vector.tolist() == pytest.approx(row(0.5, 0.1))


def test_who_was_wrong_before_is_not_believed_at_once():
    """Client 1 sent the opposite for three rounds; then both send the same, and the prior still favours client 0."""
    rule, fresh = SmartFLNext(steps=0, length=False), SmartFLNext(steps=0, length=False, evidence=False)
    for each in (rule, fresh):
        for _ in range(3):
            each(updates(row(0.1, 0), row(-0.1, 0)), server())
    last = updates(row(0.1, 0), row(0.1, 0))
    remembered, forgotten = rule(last, server()).coefficients, fresh(last, server()).coefficients
    assert remembered is not None
    assert forgotten is not None
    assert remembered[0] > 0.9
    assert forgotten.tolist() == pytest.approx([0.5, 0.5])


def test_a_high_price_keeps_the_prior():
    rows = (row(1, 0.5), row(1, -0.5), row(0.2, 1))
    found = SmartFLNext(price=1e6)(updates(*rows), server()).coefficients
    start = SmartFLNext(steps=0)(updates(*rows), server()).coefficients
    assert found is not None
    assert start is not None
    assert found.tolist() == pytest.approx(start.tolist(), abs=0.02)


def test_state_goes_through_a_checkpoint():
    rule, copy = SmartFLNext(), SmartFLNext()
    rule(updates(row(1, 0), row(-1, 0.5), ids=[3, 8]), server())
    copy.load_state_dict(rule.state_dict())
    later = updates(row(1, 1), row(0.5, 0.5), ids=[3, 5], origin=row(1, 0))
    assert torch.equal(rule(later, server()).vector, copy(later, server()).vector)


def test_a_row_that_overflows_leaves_no_trace():
    """With 1e38 in a row its logits overflow; result and state are those of the round without that client."""
    huge = torch.full((4,), 3e38)
    huge[2:] = -3e38
    with_it, without = SmartFLNext(reach=math.inf), SmartFLNext(reach=math.inf)
    found = with_it(updates(row(1, 0), row(0.5, 0.5), huge.tolist()), server())
    expected = without(updates(row(1, 0), row(0.5, 0.5)), server())
    assert torch.isfinite(found.vector).all()
    assert found.coefficients is not None
    assert found.coefficients[2] == 0
    assert any("not finite" in event for event in found.events)
    assert expected.coefficients is not None
    assert found.coefficients[:2].tolist() == pytest.approx(expected.coefficients.tolist(), abs=0.2)
    assert 2 not in with_it.state_dict()["evidence"]


@pytest.mark.parametrize("setting", [{"steps": -1}, {"reach": 0.5}, {"price": -1.0}, {"floor": 0.0}, {"rate": 0.0}])
def test_impossible_settings_are_refused(setting: dict[str, float]):
    with pytest.raises(UserError, match=next(iter(setting))):
        SmartFLNext(**setting)
