"""Divide and conquer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.dnc import DnC, spectral_scores
from smartfl.errors import UserError
from smartfl.types import Server, Updates

ROWS = torch.tensor([[1.0, 2, 3], [-1, 4, -1], [2, 2, 3], [3, 1, 3]])


def test_worked_example() -> None:
    """Client 1 stands out with 17.07; the mean of the others is (6/3, 5/3, 9/3)."""
    assert spectral_scores(ROWS).tolist() == pytest.approx([0.422991, 17.072248, 1.517117, 5.061453], abs=1e-5)
    result = DnC(f=1)(Updates.of(ROWS))
    assert result.vector.tolist() == pytest.approx([2, 5 / 3, 3])
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])


def test_scores_against_a_full_decomposition() -> None:
    rows = np.random.default_rng(3).normal(size=(12, 400)) + np.linspace(0, 3, 12)[:, None]
    centred = rows - rows.mean(axis=0)
    direction = np.linalg.svd(centred)[2][0]
    np.testing.assert_allclose(spectral_scores(torch.from_numpy(rows)).numpy(), (centred @ direction) ** 2, rtol=1e-8)


def test_random_coordinates_come_from_the_servers_generator() -> None:
    rows = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))

    def run(seed: int) -> tuple[float, ...]:
        result = DnC(f=3, subset=2, repeats=1)(Updates.of(rows), Server(generator=torch.Generator().manual_seed(seed)))
        assert result.coefficients is not None
        return tuple(result.coefficients.tolist())

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(8)}) > 1


def test_the_kept_set_is_the_intersection() -> None:
    """Client 0 stands out in coordinate 0, client 1 in coordinate 1: after filters on single coordinates both go."""
    rows = torch.zeros(6, 2)
    rows[0, 0], rows[1, 1] = 9, 9
    rows[2:] = torch.tensor([[0.1, 0.2], [0.2, 0.1], [0.1, 0.1], [0.2, 0.2]])
    result = DnC(f=1, subset=1, repeats=30)(Updates.of(rows))
    assert result.coefficients is not None
    assert torch.nonzero(result.coefficients).flatten().tolist() == [2, 3, 4, 5]
    assert result.info["kept"] == 4


def test_empty_intersection_falls_back_to_the_last_set() -> None:
    """With c = 2 and f = 1 one of three is kept per filter: another one in either coordinate."""
    rows = torch.tensor([[0.0, 4.0], [5.0, 0.0], [-6.0, -5.0]])
    result = DnC(f=1, c=2, subset=1, repeats=20)(Updates.of(rows))
    assert "no common client" in result.events[0]
    assert any(torch.equal(result.vector, row) for row in rows[:2])


def test_limits() -> None:
    with pytest.raises(UserError, match="f = 2 is too large for 4 clients: at most 1"):
        DnC(f=2)(Updates.of(ROWS))
    assert DnC(fraction=0.75)(Updates.of(ROWS)).events == ("f = 3 capped to 1 for 4 clients",)
    kept_one = DnC(f=1, c=9)(Updates.of(ROWS))
    assert "1 is kept" in kept_one.events[0]
    assert kept_one.vector.tolist() == ROWS[0].tolist()
    assert DnC(fraction=0.4).tolerates(48) == 19
    for settings in ({"subset": 0}, {"repeats": 0}, {"c": -1.0}, {"f": -2}):
        with pytest.raises(UserError, match=next(iter(settings))):
            DnC(**settings)


def test_huge_row_is_the_one_that_goes() -> None:
    rows = ROWS.clone()
    rows[1] = 1e30
    assert DnC(f=1)(Updates.of(rows)).vector.tolist() == pytest.approx([2, 5 / 3, 3])
    for huge in (1e200, 1.7e308):  # squares, and then differences, that no float64 holds
        rows = ROWS.to(torch.float64)
        rows[1] = torch.tensor([huge, -huge, huge], dtype=torch.float64)
        assert DnC(f=1)(Updates.of(rows)).vector.tolist() == pytest.approx([2, 5 / 3, 3])
