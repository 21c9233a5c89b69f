"""FoolsGold."""

from __future__ import annotations

import math

import pytest
import torch

from smartfl.aggregators.fools_gold import FoolsGold, foolsgold_weights
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

ROWS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0.01], [0, 0.2, 1]])


def test_worked_example() -> None:
    """Clients 1 and 2 point the same way and lose all; 0 and 3 share the weight: ((1 + 0)/2, 0.2/2, 1/2)."""
    result = FoolsGold()(Updates.of(ROWS))
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([0.5, 0, 0, 0.5])
    assert result.vector.tolist() == pytest.approx([0.5, 0.1, 0.5])
    assert result.info["silenced"] == 2


def test_pardoning_and_the_logit_by_hand() -> None:
    """c01 = 0.8, c02 = 0.5, c12 = 0.1: v = (0.8, 0.8, 0.5).  Client 2 is pardoned: 0.5·0.5/0.8 = 0.3125, so
    a = (0.2, 0.2, 0.6875); divided by the largest (0.290909, 0.290909, 1).  Logit of 0.290909 plus ½:
    ln(0.290909/0.709091) + 0.5 = −0.390963; it is clipped to 0.
    """
    cosines = torch.tensor([[1, 0.8, 0.5], [0.8, 1, 0.1], [0.5, 0.1, 1]], dtype=torch.float64)
    assert foolsgold_weights(cosines).tolist() == [0, 0, 1]
    milder = torch.tensor([[1, 0.6, 0.1], [0.6, 1, 0.1], [0.1, 0.1, 1]], dtype=torch.float64)
    # v = (.6, .6, .1); client 2: .1·.1/.6 = .0166667, a = (.4, .4, .983333), .4/.983333 = .4067797
    expected = math.log(0.4067797 / (1 - 0.4067797)) + 0.5
    assert foolsgold_weights(milder).tolist() == pytest.approx([expected, expected, 1], abs=1e-6)


def test_history_decides_and_survives_a_checkpoint() -> None:
    """Round 1 separates ids 3 and 8; in round 2 they send the same, but their sums (1, 1) and (0, 2) still differ:
    cos = 2/(√2·2) = 0.7071, a = 1 − cos for both, so both count alike.  Without the past both would be Sybils.
    """
    origin = torch.zeros(2)
    first = Updates.of([[1.0, 0.0], [0.0, 1.0]], origin=origin, ids=[3, 8])
    second = Updates.of([[0.0, 1.0], [0.0, 1.0]], origin=origin, ids=[3, 8])
    rule = FoolsGold()
    rule(first)
    resumed = FoolsGold()
    resumed.load_state_dict(rule.state_dict())
    assert sorted(rule.state_dict()) == ["3", "8"]
    for found in (rule(second), resumed(second)):
        assert found.coefficients is not None
        assert found.coefficients.tolist() == pytest.approx([0.5, 0.5])
        assert found.vector.tolist() == pytest.approx([0, 1])
    assert {k: v.tolist() for k, v in resumed.state_dict().items()} == {"3": [1, 1], "8": [0, 2]}
    fresh = FoolsGold()(second)
    assert fresh.vector.tolist() == [0, 0]


def test_all_alike_keeps_the_global_model_with_an_event() -> None:
    same = torch.full((4, 33), 0.1) * torch.tensor([[1.0], [2.0], [3.0], [1.0]])
    result = FoolsGold()(Updates.of(same, origin=torch.zeros(33)))
    assert torch.equal(result.vector, torch.zeros(33))
    assert result.coefficients is not None
    assert result.coefficients.tolist() == [0] * 4
    assert "Sybils" in result.events[0]


def test_zero_updates_and_huge_rows_are_finite() -> None:
    for huge, dtype in ((3e38, torch.float32), (1e200, torch.float64)):
        rule = FoolsGold()
        rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [huge, huge]], dtype=dtype)
        for _ in range(3):
            result = rule(Updates.of(rows))
        assert torch.isfinite(result.vector).all()
        assert all(torch.isfinite(h).all() for h in rule.state_dict().values())


def test_one_client_is_returned() -> None:
    assert FoolsGold()(Updates.of([[3.0, 4.0]])).vector.tolist() == [3, 4]


def test_last_compares_only_the_last_tensors() -> None:
    """Whole vectors: 0 and 1 have cosine 5000/5001 and look like Sybils, 2 is at right angles.  Heads alone: (1, 0),
    (0, 1) and (−1, −1) have no positive cosine, so all three count: mean (50 + 50 − 50)/3, 50, 0, 0, 21/3.
    """
    spec = FlatSpec((Entry("body", (2,), 0), Entry("head", (2,), 2)), (Entry("running_mean", (1,), 4),))
    updates = Updates.of([[50.0, 50, 1, 0, 6], [50, 50, 0, 1, 8], [-50, 50, -1, -1, 7]], spec=spec)
    assert FoolsGold()(updates).vector.tolist() == [-50, 50, -1, -1, 7]
    assert FoolsGold(last=1)(updates).vector.tolist() == pytest.approx([50 / 3, 50, 0, 0, 7], abs=1e-5)
    with pytest.raises(UserError, match="last"):
        FoolsGold(last=0)
