"""Distances keep their digits whatever the other rows hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators import distances
from smartfl.aggregators.distances import (
    SAMPLE,
    distances_in_hull,
    distances_to,
    gram_about,
    gram_amid,
    mix_differences,
    squared_distances,
)


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


def test_attackers_that_send_the_same_row_are_at_distance_zero() -> None:
    """20 of 48 rows are one row 100 away from the rest: their squares of about 1e7 must cancel to exactly 0."""
    rows = np.random.default_rng(3).normal(size=(48, 1000)).astype(np.float32)
    rows[5:25] = rows[5] + 100
    found = squared_distances(torch.from_numpy(rows)).numpy()
    assert (found[5:25, 5:25] == 0).all()
    np.testing.assert_allclose(found, oracle(rows), rtol=1e-12)


def clusters() -> np.ndarray:
    """Five clusters of three rows at 0, 1, 1e8, 1e16 and 1e30, the rows of each 1e-6 of that apart, shuffled."""
    rng = np.random.default_rng(4)
    scales = np.repeat([0.0, 1.0, 1e8, 1e16, 1e30], 3)[:, None]
    rows = scales * (1 + 1e-6 * rng.normal(size=(15, 50))) + 1e-9 * rng.normal(size=(15, 50))
    return rows[rng.permutation(15)].astype(np.float32)


def test_pairs_that_cancelled_are_computed_again_about_one_of_them() -> None:
    rows = clusters()
    np.testing.assert_allclose(squared_distances(torch.from_numpy(rows)).numpy(), oracle(rows), rtol=1e-11)


def test_one_product_would_not_have_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows without the second look: some pair is wrong in its first digit."""
    monkeypatch.setattr(distances, "DIGITS", -1.0)
    rows = clusters()
    i, j = np.triu_indices(15, 1)
    found, wanted = squared_distances(torch.from_numpy(rows)).numpy()[i, j], oracle(rows)[i, j]
    assert (np.abs(found - wanted) / wanted).max() > 0.1


def hidden_outlier() -> np.ndarray:
    """Client 2 is the midpoint of all where a sample looks, and 1e30 in the last column."""
    rows = np.random.default_rng(5).normal(size=(9, SAMPLE + 100)).astype(np.float32)
    rows[2, :SAMPLE] = rows[:, :SAMPLE].mean(axis=0)
    rows[2, -1] = 1e30
    return rows


def test_a_huge_row_in_the_middle_leaves_the_others_their_digits() -> None:
    rows = hidden_outlier()
    np.testing.assert_allclose(squared_distances(torch.from_numpy(rows)).numpy(), oracle(rows), rtol=1e-12)
    gram = gram_amid(torch.from_numpy(rows))
    assert gram.diagonal().argmax() == 2
    assert gram.diagonal().median() < 1e4


def test_gram_about_a_row_and_among_a_group() -> None:
    rows = np.random.default_rng(6).normal(size=(5, 9000)).astype(np.float32)
    away = rows.astype(np.float64) - rows[3].astype(np.float64)
    whole = gram_about(torch.from_numpy(rows), 3)
    np.testing.assert_allclose(whole.numpy(), away @ away.T, atol=1e-9)
    assert torch.equal(whole, whole.T)
    assert (whole[3] == 0).all()
    group = gram_about(torch.from_numpy(rows), 3, torch.tensor([1, 3, 4]))
    np.testing.assert_allclose(group.numpy(), (away @ away.T)[np.ix_([1, 3, 4], [1, 3, 4])], atol=1e-9)


def test_distances_in_the_hull_from_the_gram_matrix_alone() -> None:
    """At a vertex the distance to it is 0 up to 1e-8 of the spread, and never the root of a negative number."""
    rng = np.random.default_rng(7)
    rows = (1000 + rng.normal(size=(6, 500))).astype(np.float32)
    gram = gram_amid(torch.from_numpy(rows))
    for p in (rng.dirichlet(np.ones(6)), np.eye(6)[4]):
        away = np.linalg.norm(rows.astype(np.float64) - p @ rows.astype(np.float64), axis=1)
        np.testing.assert_allclose(distances_in_hull(gram, torch.from_numpy(p)).numpy(), away, atol=1e-6)


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
    total = torch.ones(9000, dtype=torch.float64)
    assert mix_differences(*tensors, torch.from_numpy(p), add_to=total) is total
    np.testing.assert_allclose(total.numpy(), 1 + p @ difference, atol=1e-12)
