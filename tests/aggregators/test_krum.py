"""Krum and Multi-Krum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.bulyan import Bulyan
from smartfl.aggregators.distances import squared_distances
from smartfl.aggregators.dnc import DnC
from smartfl.aggregators.krum import Krum, krum_scores
from smartfl.aggregators.multi_krum import MultiKrum
from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

ROWS = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.4], [10, 10], [-9, 8]])
DISCRIMINATING = torch.tensor([[6.0, 3], [-2, -6], [-5, 3], [-5, 0], [5, 6], [-3, -6], [0, 4]])


def test_scores_of_the_worked_example() -> None:
    """k = 7 − 2 − 2 = 3. Client 4: 0.25 + 0.16 = 0.41 twice and 0.25 + 0.36 = 0.61 once → 1.43."""
    scores = krum_scores(squared_distances(ROWS), f=2)
    assert scores.tolist() == pytest.approx([2.41, 2.41, 2.61, 2.61, 1.43, 524, 423.01], rel=1e-6)
    result = Krum(f=2)(Updates.of(ROWS))
    assert torch.equal(result.vector, ROWS[4])
    assert result.coefficients is not None
    assert result.coefficients.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_squares_once_and_leaves_itself_out() -> None:
    """Squaring twice would pick 6, counting the zero self-distance would pick 2; Krum picks 3."""
    scores = krum_scores(squared_distances(DISCRIMINATING), f=2)
    assert scores.tolist() == pytest.approx([168, 136, 120, 90, 148, 126, 92], rel=1e-14)
    assert torch.equal(Krum(f=2)(Updates.of(DISCRIMINATING)).vector, DISCRIMINATING[3])


def test_multi_krum_averages_the_q_best() -> None:
    """Clients 4, 0, 1, 2, 3: means (2.5/5, 2.4/5) = (0.5, 0.48)."""
    result = MultiKrum(f=2, q=5)(Updates.of(ROWS, num_examples=[9, 1, 1, 1, 1, 1, 1]))
    assert result.vector.tolist() == pytest.approx([0.5, 0.48])
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([0.2] * 5 + [0, 0])
    assert MultiKrum(f=2)(Updates.of(ROWS)).info["q"] == 5


def test_q_one_is_krum_and_q_n_the_mean() -> None:
    one = MultiKrum(f=2, q=1)(Updates.of(DISCRIMINATING))
    assert torch.equal(one.vector, DISCRIMINATING[3])
    every = MultiKrum(f=2, q=7)(Updates.of(DISCRIMINATING))
    assert torch.allclose(every.vector, DISCRIMINATING.mean(dim=0))


def test_ties_go_to_the_smallest_id() -> None:
    square = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    assert torch.equal(Krum(f=0)(Updates.of(square)).vector, square[0])


@pytest.mark.parametrize("rule", [Krum, MultiKrum])
def test_validity(rule: type[Krum | MultiKrum]) -> None:
    """n = 6 bears f = ⌊(6 − 3)/2⌋ = 1: f = 2 is an error, fraction 0.4 → round(2.4) = 2 is capped."""
    rows = torch.arange(12.0).reshape(6, 2)
    with pytest.raises(UserError, match="f = 2 is too large for 6 clients: at most 1"):
        rule(f=2)(Updates.of(rows))
    capped = rule(fraction=0.4)(Updates.of(rows))
    assert capped.info["f"] == 1
    assert capped.events == ("f = 2 capped to 1 for 6 clients",)
    assert rule(fraction=0.4).tolerates(48) == 19
    assert rule(fraction=0.7).tolerates(48) == 22
    assert rule(f=2).tolerates(48) == 2
    with pytest.raises(UserError, match="f = -1"):
        rule(f=-1)


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_clients_for_a_score(n: int) -> None:
    """Nothing the user set is wrong with f = 0: the smallest id of two, the only client of one, and an event."""
    result = Krum(f=0)(Updates.of(torch.arange(2.0 * n).reshape(n, 2)))
    assert result.vector.tolist() == [0, 1]
    assert result.events


def test_refused_clients_come_off_f() -> None:
    """Seven rows bear f = 2; two of them are NaN, so five rows are left and f = 0."""
    rows = ROWS.clone()
    rows[5:] = torch.nan
    result = Krum(f=2)(Updates.of(rows))
    assert result.info["f"] == 0
    assert result.events == ()
    assert result.coefficients is not None
    assert result.coefficients.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_q_against_the_cohort() -> None:
    with pytest.raises(UserError, match="q = 8 is too large"):
        MultiKrum(f=0, q=8)(Updates.of(ROWS))
    with pytest.raises(UserError, match="q = 0"):
        MultiKrum(q=0)
    rows = ROWS.clone()
    rows[0] = torch.nan
    result = MultiKrum(f=0, q=7)(Updates.of(rows))
    assert result.info["q"] == 6
    assert "capped to 6" in result.events[0]


def test_buffers_come_with_the_chosen_and_are_not_seen_by_distances() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_mean", (1,), 2),))
    buffers = torch.tensor([[1e3], [-5e3], [1.0], [2.0], [77.0], [3.0], [4.0]])
    rows = torch.cat([ROWS, buffers], dim=1)
    assert Krum(f=2)(Updates.of(rows, spec=spec)).vector.tolist() == pytest.approx([0.5, 0.4, 77])
    many = MultiKrum(f=2, q=5)(Updates.of(rows, spec=spec)).vector
    assert many[2].item() == pytest.approx((1e3 - 5e3 + 1 + 2 + 77) / 5)


def test_huge_rows_do_not_hide_the_best_client() -> None:
    rows = ROWS.clone()
    rows[5:] = torch.tensor([[1e30, -1e30], [3e38, 3e38]])
    assert torch.equal(Krum(f=2)(Updates.of(rows)).vector, ROWS[4])
    assert torch.isfinite(MultiKrum(f=2)(Updates.of(rows)).vector).all()


@pytest.mark.parametrize("rule", [Krum(f=2), MultiKrum(f=2, q=6), Bulyan(f=1), TrimmedMean(b=3), DnC(f=3)])
def test_a_number_set_for_all_clients_is_capped_when_some_are_absent(rule: Aggregator) -> None:
    """Seven clients were planned and five came; told that five are all there are, the rule refuses."""
    updates = Updates.of(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    result = rule(replace(updates, planned=7))
    assert "capped" in result.events[0]
    assert torch.isfinite(result.vector).all()
    with pytest.raises(UserError, match="too large for 5 clients"):
        rule(replace(updates, planned=5))
