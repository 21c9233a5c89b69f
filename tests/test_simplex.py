"""ALGORITHMS.md 1.3: the vectors to 1e-12, and every invariant on random vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smartfl.simplex import project_simplex

VECTORS = [
    ((0.3, 0.2, 0.1), (13 / 30, 10 / 30, 7 / 30), -4 / 30, 3),
    ((1.2, 0.5, -0.1), (0.85, 0.15, 0), 0.35, 2),
    ((0.6, 0.5, 0.4, -3), (13 / 30, 10 / 30, 7 / 30, 0), 1 / 6, 3),
    ((2, 0, 0), (1, 0, 0), 1, 1),
    ((-1, -1), (0.5, 0.5), -1.5, 2),
]

finite = st.floats(-1e3, 1e3, allow_nan=False, width=64)
vectors = st.lists(finite, min_size=1, max_size=30).map(lambda v: torch.tensor(v, dtype=torch.float64))
quick = settings(max_examples=60, deadline=None)


def nearest_by_bisection(v: np.ndarray) -> np.ndarray:
    """Π(v) = max(v − θ, 0) with θ the root of Σ max(v − θ, 0) = 1, a decreasing function: no sorting involved."""
    low, high = v.max() - 1, v.max()
    for _ in range(200):
        theta = (low + high) / 2
        low, high = (theta, high) if np.maximum(v - theta, 0).sum() > 1 else (low, theta)
    return np.maximum(v - low, 0)


@pytest.mark.parametrize(("v", "expected", "theta", "rho"), VECTORS)
def test_vectors_of_the_specification(v, expected, theta, rho):
    x = torch.tensor(v, dtype=torch.float64)
    p = project_simplex(x)
    assert p.tolist() == pytest.approx(expected, abs=1e-12)
    support = p > 0
    assert int(support.sum()) == rho
    assert (x - p)[support].tolist() == pytest.approx([theta] * rho, abs=1e-12)


@quick
@given(vectors)
def test_the_result_is_the_nearest_point_of_the_simplex(v):
    p = project_simplex(v)
    assert p.dtype == torch.float64
    assert float(p.min()) >= 0
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(p.numpy(), nearest_by_bisection(v.numpy()), atol=1e-9)


@quick
@given(vectors)
def test_kkt(v):
    """v_i − p_i = θ where p_i > 0, and ≤ θ elsewhere."""
    p = project_simplex(v)
    gap = v - p
    theta = gap[p > 0].max()
    torch.testing.assert_close(gap[p > 0], theta.expand(int((p > 0).sum())), rtol=0, atol=1e-9)
    assert bool((gap[p == 0] <= theta + 1e-9).all())


@quick
@given(vectors, st.floats(-1e6, 1e6))
def test_idempotent_shift_invariant_and_order_preserving(v, shift):
    p = project_simplex(v)
    torch.testing.assert_close(project_simplex(p), p, rtol=0, atol=1e-12)
    torch.testing.assert_close(project_simplex(v + shift), p, rtol=0, atol=1e-8)
    order = v.argsort()
    assert bool((p[order].diff() >= -1e-15).all())


@quick
@given(st.integers(1, 20).flatmap(lambda n: st.tuples(*[st.lists(finite, min_size=n, max_size=n)] * 2)))
def test_non_expansive(pair):
    u, v = (torch.tensor(x, dtype=torch.float64) for x in pair)
    assert float((project_simplex(u) - project_simplex(v)).norm()) <= float((u - v).norm()) + 1e-9


def test_large_values_cost_no_digits():
    """The shift by the maximum: (1e12 + 0.25, 1e12) is (0.25, 0), hence (0.625, 0.375)."""
    p = project_simplex(torch.tensor([1e12 + 0.25, 1e12], dtype=torch.float64))
    assert p.tolist() == pytest.approx([0.625, 0.375], abs=1e-12)


def test_float32_and_integers_come_out_as_float64():
    assert project_simplex(torch.tensor([3, 3])).tolist() == [0.5, 0.5]
    assert project_simplex(torch.tensor([0.5, 0.5])).dtype == torch.float64


@pytest.mark.parametrize("v", [[torch.nan, 0.0], [0.0, torch.inf], [-torch.inf]])
def test_non_finite_input_raises(v):
    with pytest.raises(ValueError, match="finite"):
        project_simplex(torch.tensor(v))


@pytest.mark.parametrize("v", [torch.empty(0), torch.zeros(2, 2), torch.tensor(1.0)])
def test_anything_but_a_vector_raises(v):
    with pytest.raises(ValueError, match="non-empty vector"):
        project_simplex(v)
