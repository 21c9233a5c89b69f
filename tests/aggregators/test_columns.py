"""Column-wise sorting, medians and trimmed means against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.columns import ascending, by_columns, middle, trimmed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ascending_sorts_each_column_and_leaves_the_input_alone(dtype: torch.dtype) -> None:
    values = torch.tensor([[3.0, -1.0], [1.0, 5.0], [2.0, 0.0]], dtype=dtype)
    before = values.clone()
    assert ascending(values).tolist() == [[1, 2, 3], [-1, 0, 5]]
    assert torch.equal(values, before)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 48])
def test_blocks_agree_with_numpy(n: int) -> None:
    matrix = np.random.default_rng(n).normal(size=(n, 53)).astype(np.float32)
    rows = torch.from_numpy(matrix)
    median = by_columns(middle, rows, block=10)
    np.testing.assert_allclose(median.numpy(), np.median(matrix, axis=0), rtol=1e-6)
    for b in range((n - 1) // 2 + 1):
        cut = np.sort(matrix.astype(np.float64), axis=0)[b : n - b].mean(axis=0)
        np.testing.assert_allclose(by_columns(lambda v, b=b: trimmed(v, b), rows, block=10).numpy(), cut, atol=1e-6)


def test_a_single_row_is_returned_and_not_sorted_in_place() -> None:
    row = torch.tensor([[3.0, 1.0, 2.0]])
    assert middle(row).tolist() == [3, 1, 2]


def test_equal_values_come_back_exactly() -> None:
    """0.1 summed 48 times and divided by 48 is not 0.1 in float32; around the base it is."""
    value = torch.full((48, 3), 0.1)
    assert torch.equal(trimmed(value, 3), value[0])


def test_huge_extremes_do_not_eat_small_values() -> None:
    """Trimming ±1e30 leaves (1, 2, 3), mean 2; a running sum minus the extremes would give 0."""
    column = torch.tensor([[1e30], [1.0], [2.0], [3.0], [-1e30]])
    assert trimmed(column, 1).item() == 2


def test_values_at_both_ends_of_float32_have_a_mean() -> None:
    """(3 + 1 − 3 + 1)/4 = 0.5 times 1e38: the difference 6e38 is no float32."""
    values = torch.tensor([[3e38, 0.1], [1e38, 0.1], [-3e38, 0.1], [1e38, 0.1]])
    assert trimmed(values, 0).tolist() == [pytest.approx(0.5e38), values[0, 1].item()]
    assert middle(torch.tensor([[3e38], [-3e38]])).tolist() == [0]


def test_half_precision_is_widened_before_anything_is_averaged() -> None:
    """bfloat16 holds 1 and 1.0078125 but nothing between; their median does lie between."""
    rows = torch.tensor([[1.0], [1.0078125]], dtype=torch.bfloat16)
    result = by_columns(middle, rows)
    assert result.dtype == torch.float32
    assert result.item() == 1.00390625
