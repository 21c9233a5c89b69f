"""FedAvg and the uniform mean."""

from __future__ import annotations

import pytest
import torch

from smartfl import flat
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.uniform import Uniform
from smartfl.types import Updates


def test_counts_weigh() -> None:
    """w = (0, 3), N = (1, 2): 0·1/3 + 3·2/3 = 2."""
    result = FedAvg()(Updates.of([[0.0], [3.0]], num_examples=[1, 2]))
    assert result.vector.item() == pytest.approx(2)
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_equals_the_origin_plus_weighted_updates() -> None:
    """w^t + Σ α_i Δ_i = 10 + (1·(1 − 10) + 3·(5 − 10))/4 = 10 − 6 = 4 = (1 + 15)/4."""
    updates = Updates.of([[1.0], [5.0]], num_examples=[1, 3], origin=[10.0])
    deltas = updates.origin + updates.weights.float() @ updates.deltas
    assert FedAvg()(updates).vector.item() == pytest.approx(4)
    assert deltas.item() == pytest.approx(4)


def test_a_client_without_samples_counts_for_nothing_and_none_at_all_means_uniform() -> None:
    assert FedAvg()(Updates.of([[1.0], [9.0]], num_examples=[4, 0])).vector.item() == 1
    assert FedAvg()(Updates.of([[1.0], [9.0]], num_examples=[0, 0])).vector.item() == 5


def test_uniform_ignores_counts() -> None:
    result = Uniform()(Updates.of([[0.0], [3.0], [6.0]], num_examples=[1, 2, 100]))
    assert result.vector.item() == pytest.approx(3)
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("rule", [FedAvg(), Uniform()])
def test_buffers_take_the_same_weights(rule: FedAvg | Uniform) -> None:
    """Counts 1 and 3 on buffers 0 and 8: FedAvg 6, uniform 4."""
    spec = flat.FlatSpec((flat.Entry("w", (1,), 0),), (flat.Entry("running_var", (1,), 1),))
    updates = Updates.of([[0.0, 0.0], [8.0, 8.0]], num_examples=[1, 3], spec=spec)
    assert rule(updates).vector.tolist() == ([6, 6] if isinstance(rule, FedAvg) else [4, 4])


def test_no_valid_client_keeps_the_model() -> None:
    result = FedAvg()(Updates.of([[torch.nan], [torch.inf]], origin=[7.0]))
    assert result.vector.item() == 7
    assert result.events
    assert [d.id for d in result.dropped] == [0, 1]
