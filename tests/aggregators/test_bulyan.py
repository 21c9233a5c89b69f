"""Bulyan."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.bulyan import Bulyan, mean_around_median, select_by_krum
from smartfl.aggregators.distances import squared_distances
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

SCALARS = torch.tensor([[1.0], [1.1], [0.9], [1.2], [0.8], [1.05], [50.0]])


def test_worked_example() -> None:
    """θ = 5: 1.05, 1, 1.1, 0.9, 1.2 in some order; median 1.05; the β = 3 closest are 1, 1.05, 1.1: mean 1.05."""
    chosen = select_by_krum(squared_distances(SCALARS), f=1, theta=5)
    assert sorted(chosen) == [0, 1, 2, 3, 5]
    result = Bulyan(f=1)(Updates.of(SCALARS))
    assert result.vector.item() == pytest.approx(1.05)
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.2, 0, 0.2, 0])


def oracle(rows: np.ndarray, f: int) -> np.ndarray:
    """Bulyan in plain loops, from the definition."""
    rest, chosen = list(range(len(rows))), []
    for _ in range(len(rows) - 2 * f):
        k = max(1, len(rest) - f - 2)
        scores = [sum(sorted(((rows[i] - rows[j]) ** 2).sum() for j in rest if j != i)[:k]) for i in rest]
        chosen.append(rest.pop(int(np.argmin(scores))))
    selected = rows[chosen]
    median = np.median(selected, axis=0)
    order = np.argsort(np.abs(selected - median), axis=0)[: len(chosen) - 2 * f]
    return np.take_along_axis(selected, order, axis=0).mean(axis=0)


@pytest.mark.parametrize(("n", "f"), [(7, 1), (11, 2), (12, 2), (20, 4), (5, 0)])
def test_against_the_definition(n: int, f: int) -> None:
    rows = np.random.default_rng(n).normal(size=(n, 37))
    rows[:f] += 100
    np.testing.assert_allclose(Bulyan(f=f)(Updates.of(rows)).vector.numpy(), oracle(rows, f), atol=1e-12)


def test_a_tie_around_the_median_takes_the_lower_value() -> None:
    """Median of (0, 1, 2) is 1; 0 and 2 are equally far, so β = 2 averages 0 and 1."""
    assert mean_around_median(torch.tensor([[2.0], [0.0], [1.0]]), 2).item() == 0.5


def test_validity() -> None:
    """4f + 3 ≤ n: 10 clients bear one attacker, 48 bear 11."""
    rows = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match="f = 2 is too large for 10 clients: at most 1"):
        Bulyan(f=2)(Updates.of(rows))
    capped = Bulyan(fraction=0.3)(Updates.of(rows))
    assert (capped.info["f"], capped.info["selected"]) == (1, 8)
    assert capped.events == ("f = 3 capped to 1 for 10 clients",)
    assert Bulyan(fraction=0.3).tolerates(48) == 11
    assert Bulyan(f=0)(Updates.of(rows[:1])).vector.tolist() == rows[0].tolist()


def test_buffers_are_averaged_over_the_selected() -> None:
    """Selected are 0, 1, 2, 3, 5 with buffers 0, 1, 2, 3, 5: mean 2.2, though their trimmed mean would be 2."""
    spec = FlatSpec((Entry("w", (1,), 0),), (Entry("running_mean", (1,), 1),))
    rows = torch.cat([SCALARS, torch.arange(7.0)[:, None]], dim=1)
    assert Bulyan(f=1)(Updates.of(rows, spec=spec)).vector.tolist() == pytest.approx([1.05, 2.2])


def test_huge_row() -> None:
    rows = SCALARS.clone()
    rows[6] = 1e30
    assert Bulyan(f=1)(Updates.of(rows)).vector.item() == pytest.approx(1.05)
