"""Norm clipping."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.norm_clipping import NormClipping
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Server, Updates

DELTAS = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, -20.0]])


def test_fixed_threshold() -> None:
    """M = 1: (0.6, 0.8), (0.3, 0.4), (0, −1); counts 1, 1, 2: (0.6 + 0.3)/4, (0.8 + 0.4 − 2)/4."""
    result = NormClipping(threshold=1)(Updates.of(DELTAS, num_examples=[1, 1, 2]))
    assert result.vector.tolist() == pytest.approx([0.225, -0.2])
    assert result.info == {"threshold": 1, "clipped": 2}
    assert result.coefficients is not None
    assert result.coefficients.tolist() == [0.25, 0.25, 0.5]


def test_adaptive_threshold_is_the_median_norm() -> None:
    """Norms 5, 0.5, 20: M = 5, the third becomes (0, −5): mean (3.3/3, −0.6/3)."""
    result = NormClipping()(Updates.of(DELTAS))
    assert result.vector.tolist() == pytest.approx([1.1, -0.2])
    assert result.info["threshold"] == pytest.approx(5)


def test_large_threshold_is_fedavg_buffers_included() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_var", (1,), 2),))
    rows = torch.cat([DELTAS, torch.tensor([[1.0], [2], [3]])], dim=1)
    updates = Updates.of(rows, num_examples=[5, 1, 2], origin=[1.0, 1.0, 9.0], spec=spec)
    assert torch.allclose(NormClipping(threshold=1e9)(updates).vector, FedAvg()(updates).vector)
    clipped = NormClipping(threshold=1e-9)(updates)
    assert clipped.vector.tolist() == pytest.approx([1, 1, (5 + 2 + 6) / 8])


def test_clipping_is_around_the_origin() -> None:
    """Δ = 10 − 8 = 2 and −6 with M = 1: 8 + (1 − 1)/2 = 8."""
    assert NormClipping(threshold=1)(Updates.of([[10.0], [2.0]], origin=[8.0])).vector.item() == 8


def test_zero_updates_and_huge_rows() -> None:
    assert NormClipping()(Updates.of(torch.zeros(3, 2))).vector.tolist() == [0, 0]
    huge = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3e38, 3e38]])
    vector = NormClipping(threshold=1)(Updates.of(huge)).vector
    assert vector.tolist() == pytest.approx([(1 + 0.5**0.5) / 3] * 2)


def test_noise_has_the_right_size_and_comes_from_the_servers_generator() -> None:
    updates = Updates.of(torch.zeros(2, 20_000))
    first, again = (NormClipping(noise=0.5)(updates, Server(generator=torch.Generator().manual_seed(3))) for _ in "ab")
    other = NormClipping(noise=0.5)(updates, Server(generator=torch.Generator().manual_seed(4)))
    assert torch.equal(first.vector, again.vector)
    assert not torch.equal(first.vector, other.vector)
    assert first.vector.std().item() == pytest.approx(0.5, rel=0.03)


def test_settings() -> None:
    for settings in ({"threshold": 0.0}, {"noise": -1.0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            NormClipping(**settings)
    assert NormClipping().tolerates(9) is None
