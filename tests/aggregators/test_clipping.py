"""Clipping around other rules."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.aggregators.clipping import Clipping
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fltrust import FLTrust
from smartfl.aggregators.krum import Krum
from smartfl.aggregators.median import Median
from smartfl.aggregators.norm_clipping import NormClipping
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.registry import build
from smartfl.types import Updates

DELTAS = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, -20.0]])


def test_the_rule_sees_clipped_rows() -> None:
    """M = 1: (0.6, 0.8), (0.3, 0.4), (0, −1): median (0.3, 0.4)."""
    result = Clipping(Median(), threshold=1)(Updates.of(DELTAS))
    assert result.vector.tolist() == pytest.approx([0.3, 0.4])
    assert result.info == {"threshold": 1, "clipped": 2}


def test_around_fedavg_it_is_norm_clipping() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_var", (1,), 2),))
    rows = torch.cat([DELTAS, torch.tensor([[1.0], [2], [3e5]])], dim=1)
    updates = Updates.of(rows, num_examples=[5, 1, 2], origin=[1.0, -2.0, 9.0], spec=spec)
    for threshold in (None, 0.5, 3.0):
        wrapped, rule = Clipping(FedAvg(), threshold)(updates), NormClipping(threshold)(updates)
        assert torch.allclose(wrapped.vector, rule.vector)
        assert wrapped.coefficients is not None
        assert rule.coefficients is not None
        assert torch.equal(wrapped.coefficients, rule.coefficients)


def test_the_clients_rows_stay_as_they_were() -> None:
    updates = Updates.of(DELTAS.clone())
    Clipping(Median(), threshold=0.1)(updates)
    assert torch.equal(updates.matrix, DELTAS)


def test_huge_row_becomes_one_of_length_m() -> None:
    rows = torch.tensor([[3e38, 3e38], [1.0, 0.0]])
    vector = Clipping(FedAvg(), threshold=2)(Updates.of(rows)).vector
    assert vector.tolist() == pytest.approx([(2**0.5 + 1) / 2, 2**0.5 / 2])


def test_a_difference_that_is_no_float32() -> None:
    """Δ = 3e38 − (−2e38) = 5e38, clipped to length 1e38: −2e38 + 1e38."""
    updates = Updates.of(torch.tensor([[3e38]]), origin=torch.tensor([-2e38]))
    assert Clipping(FedAvg(), threshold=1e38)(updates).vector.item() == pytest.approx(-1e38)


def test_rows_within_the_limit_come_through_as_they_are() -> None:
    """1e-9 − 1 + 1 is 0 in float32: a row that is not clipped is copied, not recomputed."""
    rows = torch.tensor([[1e-9], [50.0]])
    assert Clipping(Krum(f=0), threshold=2)(Updates.of(rows, origin=[1.0])).vector.item() == rows[0].item()


def test_delegation_and_settings() -> None:
    assert Clipping(Krum(f=2)).tolerates(20) == 2
    assert Clipping(FLTrust()).needs_proxy == "labelled"
    assert Clipping(FedAvg()).needs_proxy == "no"
    with pytest.raises(UserError, match="threshold"):
        Clipping(Median(), threshold=0)
    built = build("aggregators", "clipping", {"rule": {"name": "krum", "f": 2}, "threshold": 3})
    assert built == Clipping(Krum(f=2), threshold=3)


def test_state_is_the_inner_rules() -> None:
    rule, resumed = (Clipping(CenteredClipping(tau=1), threshold=2) for _ in range(2))
    rule(Updates.of(DELTAS))
    resumed.load_state_dict(rule.state_dict())
    assert torch.equal(rule(Updates.of(DELTAS)).vector, resumed(Updates.of(DELTAS)).vector)
