"""Distances keep their digits whatever the other rows hold."""

from __future__ import annotations

import numpy as np
import torch

from smartfl.aggregators.distances import distances_to, mix_differences, squared_distances


def oracle(rows: np.ndarray) -> np.ndarray:
    x = rows.astype(np.float64)
    return ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)


def test_equal_to_explicit_differences_over_several_blocks() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 10_001)).astype(np.float32)
    found = squared_distances(torch.from_numpy(rows))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), oracle(rows), rtol=1e-12)
    assert torch.equal(found, found.T)


def test_huge_rows_leave_the_distances_of_ordinary_rows_alone() -> None:
    """A majority of rows at ±1e30 makes any centre huge; ordinary rows 1 ± 1e-6 still differ by their own digits."""
    rng = np.random.default_rng(1)
    ordinary = (1 + 1e-6 * rng.normal(size=(3, 200))).astype(np.float32)
    huge = (1e30 * rng.normal(size=(4, 200))).astype(np.float32)
    rows = np.vstack([huge[:2], ordinary, huge[2:]])
    found = squared_distances(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(found[2:5, 2:5], oracle(ordinary), rtol=1e-12)
    np.testing.assert_allclose(found, oracle(rows), rtol=1e-12)
    assert np.isfinite(found).all()


def test_close_rows_far_from_the_others_keep_their_digits() -> None:
    """Two rows at distance 1e-3 around 1e4: the Gram form about any other row loses 1e-6 next to 1e8 · 1e-16 · d."""
    far = torch.full((2, 1000), 1e4, dtype=torch.float64)
    far[1, 0] += 1e-3
    rows = torch.cat([torch.zeros(3, 1000, dtype=torch.float64), far])
    difference = float(far[1, 0] - far[0, 0])
    assert squared_distances(rows)[3, 4].item() == difference**2


def test_overflowing_float64_is_infinite_and_never_nan() -> None:
    rows = torch.tensor([[1e200], [-1e200], [0.0]], dtype=torch.float64)
    found = squared_distances(rows)
    assert not torch.isnan(found).any()
    assert torch.isinf(found[0, 1])


def test_one_row_and_no_columns() -> None:
    assert squared_distances(torch.ones(1, 5)).tolist() == [[0.0]]
    assert squared_distances(torch.ones(2, 0)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_distances_to_and_mixes_about_a_centre() -> None:
    rng = np.random.default_rng(2)
    rows, centre, p = rng.normal(size=(5, 9000)).astype(np.float32), rng.normal(size=9000), rng.normal(size=5)
    difference = rows.astype(np.float64) - centre
    tensors = torch.from_numpy(rows), torch.from_numpy(centre)
    np.testing.assert_allclose(distances_to(*tensors).numpy(), np.linalg.norm(difference, axis=1), rtol=1e-12)
    np.testing.assert_allclose(distances_to(*tensors, order=1).numpy(), np.abs(difference).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(mix_differences(*tensors, torch.from_numpy(p)).numpy(), p @ difference, atol=1e-12)
