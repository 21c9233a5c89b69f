"""Residual-based reweighting against a plain transcription of its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.residual_reweighting import ResidualReweighting, repeated_median
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates


def oracle(rows: np.ndarray, lam: float = 2.0, threshold: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """One coordinate at a time, in loops."""
    n, d = rows.shape
    design = np.stack([np.ones(n), np.arange(n)], axis=1)
    hat = np.diag(design @ np.linalg.inv(design.T @ design) @ design.T)
    total, corrected = np.zeros(n), rows.copy()
    for c in range(d):
        order = np.argsort(rows[:, c], kind="stable")
        y = rows[order, c]
        slope = np.median([np.median([(y[j] - y[i]) / (j - i) for j in range(n) if j != i]) for i in range(n)])
        line = np.median(y) + slope * (np.arange(n) - (n - 1) / 2)
        r = y - line
        tau = 1.4826 * (1 + 5 / (n - 1)) * np.median(np.sort(np.abs(r))[1:]) + 1e-7
        e, h, bound = r / tau, np.sqrt(1 - hat), lam * np.sqrt(2 / n)
        with np.errstate(all="ignore"):
            u = h / e * np.clip(e / h, -bound, bound)
        u[np.isnan(u)] = 1
        total[order] += u * u.std(ddof=1)
        corrected[order, c] = np.where(u < threshold, line, y)
    p = (total / total.max()) ** 2
    p = p / p.sum()
    return p @ corrected, p


@pytest.mark.parametrize("n", [3, 8, 11])
def test_against_the_definition(n: int) -> None:
    rows = np.random.default_rng(n).normal(size=(n, 61))
    rows[0] += 25
    vector, p = oracle(rows)
    result = ResidualReweighting()(Updates.of(rows))
    np.testing.assert_allclose(result.vector.numpy(), vector, rtol=1e-9)
    assert result.coefficients is not None
    np.testing.assert_allclose(result.coefficients.numpy(), p, rtol=1e-9)


def test_repeated_median_line_by_hand() -> None:
    """y = (1, 5, 6, 72). Slopes from 1: 4, 2.5, 23.67 → 4; from 5: 4, 1, 33.5 → 4; from 6: 2.5, 1, 66 → 2.5;
    from 72: 23.67, 33.5, 66 → 33.5. Their median is (4 + 4)/2 = 4; the median of y is 5.5.
    """
    middle, slope = repeated_median(torch.tensor([[72.0, 5.0, 1.0, 6.0]], dtype=torch.float64))
    assert (middle.item(), slope.item()) == (5.5, 4)


def test_an_outlier_loses_its_weight_and_its_values() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(10, 300, generator=generator)
    honest = rows[1:].mean(dim=0)
    rows[0] = 1e30
    result = ResidualReweighting()(Updates.of(rows))
    assert result.coefficients is not None
    assert result.coefficients[0].item() < 1e-6
    assert torch.isfinite(result.vector).all()
    assert (result.vector - honest).abs().mean() < 0.5


def test_equal_clients_and_too_few_clients() -> None:
    same = ResidualReweighting()(Updates.of(torch.full((4, 5), 0.3)))
    assert torch.allclose(same.vector, torch.full((5,), 0.3))
    assert same.coefficients is not None
    assert same.coefficients.tolist() == pytest.approx([0.25] * 4)
    two = ResidualReweighting()(Updates.of([[1.0], [3.0]], num_examples=[1, 9]))
    assert two.vector.item() == 2
    assert two.events


def test_buffers_take_the_client_weights_uncorrected() -> None:
    spec = FlatSpec((Entry("w", (40,), 0),), (Entry("running_var", (1,), 40),))
    rows = torch.randn(7, 41, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows[:, 40] = torch.tensor([1.0, 2, 3, 4, 5, 6, 500], dtype=torch.float64)
    result = ResidualReweighting()(Updates.of(rows, spec=spec))
    assert result.coefficients is not None
    assert result.vector[40].item() == pytest.approx(float(result.coefficients @ rows[:, 40]))
    alone = ResidualReweighting()(Updates.of(rows[:, :40]))
    assert torch.equal(alone.vector, result.vector[:40])


def test_settings() -> None:
    for settings in ({"lam": 0.0}, {"threshold": 2.0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            ResidualReweighting(**settings)
    assert ResidualReweighting().tolerates(10) == 4
