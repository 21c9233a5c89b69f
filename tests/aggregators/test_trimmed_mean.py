"""Coordinate-wise trimmed mean."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.errors import UserError
from smartfl.types import Updates

ROWS = [[1.0, 2.0, 3.0], [-1.0, 4.0, -1.0], [2.0, 2.0, 3.0], [3.0, 1.0, 3.0]]


def test_drops_b_at_both_ends() -> None:
    """b = 1 leaves (1,2), (2,2), (3,3): means 1.5, 2, 3."""
    assert TrimmedMean(b=1)(Updates.of(ROWS)).vector.tolist() == [1.5, 2, 3]


def test_b_zero_is_the_unweighted_mean() -> None:
    """Columns sum to 5, 9, 8; over 4: 1.25, 2.25, 2. A slice [b:-b] would be empty."""
    result = TrimmedMean(b=0)(Updates.of(ROWS, num_examples=[1, 2, 3, 4]))
    assert result.vector.tolist() == [1.25, 2.25, 2]


def test_too_large_b_is_the_users_mistake_a_fraction_is_capped() -> None:
    with pytest.raises(UserError, match="b = 2 is too large for 4 clients: at most 1"):
        TrimmedMean(b=2)(Updates.of(ROWS))
    result = TrimmedMean(fraction=0.7)(Updates.of(ROWS))
    assert result.vector.tolist() == [1.5, 2, 3]
    assert result.info["b"] == 1
    assert result.events == ("b = 3 capped to 1 for 4 clients",)


def test_paper_setting() -> None:
    """AR 0.4 of 48: b = round(19.2) = 19, ten values remain: of 0…47 those are 19…28, mean 23.5."""
    result = TrimmedMean(fraction=0.4)(Updates.of(torch.arange(48.0)[:, None]))
    assert result.vector.item() == 23.5
    assert TrimmedMean(fraction=0.4).tolerates(48) == 19


def test_refused_clients_come_off_b() -> None:
    """Of b = 2 one is known: NaN was dropped, so one is cut at each end of (0, 1, 5, 100): mean of (1, 5) = 3."""
    result = TrimmedMean(b=2)(Updates.of([[0.0], [1.0], [torch.nan], [5.0], [100.0]]))
    assert result.vector.item() == 3
    assert result.info["b"] == 1


@pytest.mark.parametrize("settings", [{"b": -1}, {"fraction": -0.1}, {"fraction": 1.5}])
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(UserError):
        TrimmedMean(**settings)


def test_tolerates_what_it_assumes() -> None:
    assert TrimmedMean().tolerates(10) == 0
    assert TrimmedMean(b=3).tolerates(10) == 3
    assert TrimmedMean(b=30).tolerates(10) == 4
