"""Inverse distance aggregation."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.ida import IDA
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

ROWS = torch.tensor([[0.0, 0], [2, 0], [10, 2]], dtype=torch.float64)


def test_worked_example() -> None:
    """Mean (4, 2/3); ℓ1 distances 14/3, 8/3, 22/3; inverses over their sum: 0.295302, 0.516779, 0.187919."""
    result = IDA()(Updates.of(ROWS, num_examples=[100, 1, 1]))
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([0.295302, 0.516779, 0.187919], abs=1e-6)
    assert result.vector.tolist() == pytest.approx((result.coefficients @ ROWS).tolist())


def test_equal_clients_count_alike() -> None:
    result = IDA()(Updates.of(torch.full((3, 4), 0.1)))
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([1 / 3] * 3)


def test_a_client_on_the_mean_takes_all_but_a_trace() -> None:
    result = IDA()(Updates.of([[-1.0], [0.0], [1.0]]))
    assert result.coefficients is not None
    assert result.coefficients[1].item() == pytest.approx(1, abs=1e-9)
    assert torch.isfinite(result.coefficients).all()


def test_buffers_take_the_weights_and_are_not_in_the_distance() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_mean", (1,), 2),))
    rows = torch.cat([ROWS, torch.tensor([[1e6], [0.0], [0.0]], dtype=torch.float64)], dim=1)
    result = IDA()(Updates.of(rows, spec=spec))
    assert result.vector[2].item() == pytest.approx(0.295302e6, rel=1e-5)


def test_a_huge_row_gives_a_finite_result() -> None:
    assert torch.isfinite(IDA()(Updates.of([[1.0], [2.0], [1e30]])).vector).all()
