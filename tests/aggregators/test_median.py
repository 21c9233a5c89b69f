"""Coordinate-wise median."""

from __future__ import annotations

import torch

from smartfl.aggregators.median import Median
from smartfl.types import Updates

ROWS = [[1.0, 2.0, 3.0], [-1.0, 4.0, -1.0], [2.0, 2.0, 3.0], [3.0, 1.0, 3.0]]


def test_even_number_of_clients_takes_the_mean_of_the_two_middle_values() -> None:
    """Sorted columns (−1,1,2,3), (1,2,2,4), (−1,3,3,3): middles 1.5, 2, 3; the lower median would be (1, 2, 3)."""
    result = Median()(Updates.of(ROWS, num_examples=[1, 1, 1, 1000]))
    assert result.vector.tolist() == [1.5, 2, 3]
    assert result.coefficients is None


def test_odd_number_of_clients() -> None:
    assert Median()(Updates.of(ROWS[:3])).vector.tolist() == [1, 2, 3]


def test_huge_minority_of_the_same_sign_stays_outside() -> None:
    rows = torch.tensor([[1.0], [1.5], [2.0], [1e30], [3e38]])
    assert Median()(Updates.of(rows)).vector.item() == 2
    assert Median().tolerates(5) == 2
    assert Median().tolerates(48) == 23
