"""Nearest-neighbour mixing around other rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.aggregators.fltrust import FLTrust
from smartfl.aggregators.krum import Krum
from smartfl.aggregators.median import Median
from smartfl.aggregators.nearest_neighbour_mixing import NearestNeighbourMixing
from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.aggregators.uniform import Uniform
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.registry import build
from smartfl.types import Updates


def test_by_hand() -> None:
    """(0), (1), (3), (100) with f = 1: each with its two nearest others.  0, 1, 3 → 4/3 each, 100 with 3 and 1 →
    104/3; the uniform mean is (3·4 + 104)/12 = 29/3, and 100 was used once in twelve: p = (3, 4, 4, 1)/12.
    """
    result = NearestNeighbourMixing(Uniform(), f=1)(Updates.of([[0.0], [1.0], [3.0], [100.0]]))
    assert result.vector.item() == pytest.approx(29 / 3)
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([3 / 12, 4 / 12, 4 / 12, 1 / 12])


def test_median_of_the_mixed_rows_against_numpy() -> None:
    rows = np.random.default_rng(5).normal(size=(9, 30))
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    mixed = np.stack([rows[np.argsort(distances[i])[:7]].mean(axis=0) for i in range(9)])
    result = NearestNeighbourMixing(Median(), f=2)(Updates.of(rows))
    np.testing.assert_allclose(result.vector.numpy(), np.median(mixed, axis=0), atol=1e-12)
    assert result.coefficients is None


def test_coefficients_of_a_selection_are_those_of_its_neighbourhood() -> None:
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = NearestNeighbourMixing(Krum(f=2), f=2)(Updates.of(rows))
    assert result.coefficients is not None
    assert sorted(result.coefficients.tolist()) == pytest.approx([0, 0] + [1 / 7] * 7)
    assert torch.allclose(result.coefficients @ rows, result.vector)


def test_huge_row_is_in_no_other_neighbourhood() -> None:
    rows = torch.tensor([[1.0], [2.0], [3.0], [1e30], [2.5]])
    assert NearestNeighbourMixing(Median(), f=1)(Updates.of(rows)).vector.item() == pytest.approx(2.125)


def test_buffers_are_mixed_but_not_seen() -> None:
    """Parameters pair 0 with 1 and 2 with 3 (f = 1 of n = 3 would not): with f = 2 of 5 each takes three."""
    spec = FlatSpec((Entry("w", (1,), 0),), (Entry("running_mean", (1,), 1),))
    rows = torch.tensor([[0.0, 9e5], [1.0, 3.0], [2.0, 6.0], [50.0, 0.0], [51.0, 0.0]])
    result = NearestNeighbourMixing(Krum(f=1), f=2)(Updates.of(rows, spec=spec))
    assert result.vector.tolist() == pytest.approx([1, (9e5 + 9) / 3])


def test_validity_events_and_delegation() -> None:
    updates = Updates.of(torch.arange(4.0)[:, None])
    with pytest.raises(UserError, match="f = 2 is too large for 4 clients: at most 1"):
        NearestNeighbourMixing(Median(), f=2)(updates)
    result = NearestNeighbourMixing(TrimmedMean(fraction=0.5), fraction=0.5)(updates)
    assert result.events == ("f = 2 capped to 1 for 4 clients", "b = 2 capped to 1 for 4 clients")
    assert NearestNeighbourMixing(Median(), f=3).tolerates(10) == 3
    assert NearestNeighbourMixing(Krum(f=2), f=3).tolerates(10) == 2
    assert NearestNeighbourMixing(CenteredClipping(), f=3).tolerates(10) == 3
    assert NearestNeighbourMixing(FLTrust()).needs_proxy == "labelled"
    with pytest.raises(UserError, match="f = -1"):
        NearestNeighbourMixing(Median(), f=-1)


def test_state_is_the_inner_rules() -> None:
    rule = NearestNeighbourMixing(CenteredClipping(tau=1), f=1)
    updates = Updates.of([[0.0], [1.0], [3.0], [100.0]])
    rule(updates)
    resumed = NearestNeighbourMixing(CenteredClipping(tau=1), f=1)
    resumed.load_state_dict(rule.state_dict())
    assert torch.equal(rule(updates).vector, resumed(updates).vector)


def test_built_from_a_table() -> None:
    table = {"rule": {"name": "bucketing", "rule": {"name": "median"}}, "f": 1}
    assert isinstance(build("aggregators", "nearest_neighbour_mixing", table), NearestNeighbourMixing)
