"""The description length of weights."""

from __future__ import annotations

import math

import pytest
import torch

from smartfl.aggregators.smartfl_next.price import description_length

PRIOR = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_one_row_by_hand():
    """½ ln 1 + ½ ln 2 + 0 ln 0, and the logarithms themselves."""
    value, gradient = description_length(rows([0.5, 0.5, 0.0])[0], PRIOR)
    assert value == pytest.approx(0.5 * math.log(2))
    assert gradient.tolist() == pytest.approx([0, math.log(2), 0])


def test_equal_rows_cost_as_much_as_one():
    p = [0.2, 0.3, 0.5]
    assert description_length(rows(p, p, p), PRIOR)[0] == pytest.approx(description_length(rows(p)[0], PRIOR)[0])


def test_two_rows_by_hand():
    """Corners 0 and 1 with a mean of (½, ½, 0): KL(p̄ ‖ π) = ½ ln 2, and ln 2 for each row."""
    value, _ = description_length(rows([1, 0, 0], [0, 1, 0]), PRIOR)
    assert value == pytest.approx(2.5 * math.log(2))


def test_the_gradient_is_that_of_the_value_along_the_simplex():
    p = rows([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
    step = 1e-6 * rows([1, -2, 1], [-1, 0, 1])  # keeps the sums
    up, down = description_length(p + step, PRIOR)[0], description_length(p - step, PRIOR)[0]
    assert float((description_length(p, PRIOR)[1] * 2 * step).sum()) == pytest.approx(up - down, rel=1e-5)
