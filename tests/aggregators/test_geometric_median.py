"""Geometric median."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.geometric_median import GeometricMedian
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

ROWS = torch.tensor([[0, 0], [2, 0], [0, 2], [2, 2], [100, 100]], dtype=torch.float64)


@pytest.mark.parametrize(("steps", "value"), [(1, 6.843825), (2, 2.602914), (3, 1.736222), (4, 1.705201)])
def test_weiszfeld_steps_from_the_mean(steps: int, value: float) -> None:
    vector = GeometricMedian(iterations=steps, tolerance=0)(Updates.of(ROWS)).vector
    assert vector.tolist() == pytest.approx([value, value], abs=1e-6)


def test_limit_and_optimality() -> None:
    """At a minimiser that is no data point the unit vectors to the clients add up to zero."""
    vector = GeometricMedian(iterations=2000, tolerance=0)(Updates.of(ROWS)).vector
    assert vector.tolist() == pytest.approx([1.577350, 1.577350], abs=1e-5)
    rows = np.random.default_rng(0).normal(size=(9, 6))
    z = GeometricMedian(iterations=5000, tolerance=0)(Updates.of(rows)).vector.numpy()
    units = (rows - z) / np.linalg.norm(rows - z, axis=1, keepdims=True)
    assert np.linalg.norm(units.sum(axis=0)) < 1e-4


def test_minimum_at_a_data_point() -> None:
    """(0,0) amid (±1,0), (0,±1) and itself twice: the other units cancel, norm 0 ≤ 2."""
    rows = torch.tensor([[0.0, 0], [0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    result = GeometricMedian()(Updates.of(rows))
    assert result.vector.tolist() == pytest.approx([0, 0], abs=1e-5)


def test_sample_counts_on_request() -> None:
    """On a line the geometric median is the weighted median: counts (1, 1, 5) put it on the third client."""
    updates = Updates.of(torch.tensor([[0.0], [1.0], [10.0]]), num_examples=[1, 1, 5])
    assert GeometricMedian(weighted=True, iterations=1000)(updates).vector.item() == pytest.approx(10, abs=1e-3)
    assert GeometricMedian(iterations=1000, tolerance=1e-9)(updates).vector.item() == pytest.approx(1, abs=1e-3)


def test_a_huge_row_is_left_behind() -> None:
    """From a mean of 2e29 the default steps come back to the square around (1, 1)."""
    rows = ROWS.float()
    rows[4] = 1e30
    vector = GeometricMedian()(Updates.of(rows)).vector
    assert vector.tolist() == pytest.approx([1.57735, 1.57735], abs=1e-2)


def weiszfeld(rows: np.ndarray, steps: int) -> np.ndarray:
    """The definition with explicit distances, float64."""
    z = rows.mean(axis=0)
    for _ in range(steps):
        beta = 1 / np.maximum(1e-6, np.linalg.norm(rows - z, axis=1))
        z = beta @ rows / beta.sum()
    return z


@pytest.mark.parametrize("off", [0.0, 50.0, 1e6])
def test_against_explicit_distances_in_every_step(off: float) -> None:
    """Rows far from 0 and attackers far from the rows: the Gram matrix must lose neither."""
    rows = (1000 + np.random.default_rng(1).normal(size=(11, 5000))).astype(np.float32)
    rows[:4] += off
    vector = GeometricMedian(iterations=20, tolerance=0)(Updates.of(rows)).vector.numpy()
    np.testing.assert_allclose(vector, weiszfeld(rows.astype(np.float64), 20), rtol=3e-7)


def test_a_huge_value_where_no_sample_looks() -> None:
    """Client 0 equals the mean in all columns but the last, where it is 1e30: it must not become the centre."""
    rows = np.random.default_rng(2).normal(size=(9, 1000)).astype(np.float32)
    rows[0] = rows.mean(axis=0)
    rows[0, -1] = 1e30
    vector = GeometricMedian()(Updates.of(rows)).vector.numpy()
    np.testing.assert_allclose(vector, weiszfeld(rows.astype(np.float64), 200), atol=1e-3)


def test_buffers_take_the_final_weights() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_var", (1,), 2),))
    rows = torch.cat([ROWS, torch.tensor([[1.0], [2], [3], [4], [1000]], dtype=torch.float64)], dim=1)
    result = GeometricMedian()(Updates.of(rows, spec=spec))
    assert result.coefficients is not None
    assert result.coefficients.sum().item() == pytest.approx(1)
    assert result.vector.tolist() == pytest.approx((result.coefficients @ rows).tolist())
    plain = GeometricMedian()(Updates.of(ROWS))
    assert result.vector[:2].tolist() == plain.vector.tolist()


def test_settings() -> None:
    for settings in ({"iterations": 0}, {"smoothing": 0.0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            GeometricMedian(**settings)
    assert GeometricMedian().tolerates(10) == 4
