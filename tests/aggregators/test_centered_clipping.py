"""Centered clipping."""

from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.errors import UserError
from smartfl.flat import Entry, FlatSpec
from smartfl.types import Updates

DELTAS = torch.tensor([[1.0, 0], [0, 1], [100, 0]], dtype=torch.float64)


@pytest.mark.parametrize(("steps", "value"), [(1, [0.666667, 0.333333]), (3, [0.976749, 0.470982])])
def test_worked_example(steps: int, value: list[float]) -> None:
    """From v = 0 all three are clipped to length 1: ((1 + 0 + 1)/3, (0 + 1 + 0)/3)."""
    result = CenteredClipping(tau=1, iterations=steps)(Updates.of(DELTAS))
    assert result.vector.tolist() == pytest.approx(value, abs=1e-6)
    assert result.coefficients is None


def test_updates_are_relative_to_the_origin() -> None:
    origin = torch.tensor([7.0, -3.0], dtype=torch.float64)
    result = CenteredClipping(tau=1, iterations=1)(Updates.of(DELTAS + origin, origin=origin))
    assert result.vector.tolist() == pytest.approx([7 + 2 / 3, -3 + 1 / 3])


def test_v_is_carried_across_rounds_and_through_a_checkpoint() -> None:
    """Three rounds of one step from an unchanged origin are one round of three steps."""
    rule = CenteredClipping(tau=1, iterations=1)
    for _ in range(2):
        rule(Updates.of(DELTAS))
    resumed = CenteredClipping(tau=1, iterations=1)
    resumed.load_state_dict(rule.state_dict())
    assert resumed(Updates.of(DELTAS)).vector.tolist() == pytest.approx([0.976749, 0.470982], abs=1e-6)
    assert torch.equal(rule(Updates.of(DELTAS)).vector, resumed(Updates.of(DELTAS)).vector) is False
    rule.load_state_dict({})
    assert rule(Updates.of(DELTAS)).vector.tolist() == pytest.approx([0.666667, 0.333333], abs=1e-6)


def test_nothing_to_clip_is_the_uniform_mean() -> None:
    result = CenteredClipping(tau=1000, iterations=4)(Updates.of(DELTAS, num_examples=[1, 50, 1]))
    assert result.vector.tolist() == pytest.approx([101 / 3, 1 / 3])
    assert result.info["clipped"] == 0


def test_zero_distance_and_huge_row() -> None:
    """Δ = (0, 1e30) from v = 0 with τ = 1: the mean of 0 and a unit step is 0.5."""
    assert CenteredClipping(tau=1, iterations=1)(Updates.of([[0.0], [1e30]])).vector.item() == pytest.approx(0.5)


def test_buffers_are_the_uniform_mean_and_never_in_the_norm() -> None:
    spec = FlatSpec((Entry("w", (2,), 0),), (Entry("running_var", (1,), 2),))
    rows = torch.cat([DELTAS, torch.tensor([[3.0], [30], [300]], dtype=torch.float64)], dim=1)
    result = CenteredClipping(tau=1, iterations=1)(Updates.of(rows, num_examples=[1, 2, 3], spec=spec))
    assert result.vector.tolist() == pytest.approx([2 / 3, 1 / 3, 111])


def test_settings() -> None:
    for settings in ({"tau": 0.0}, {"iterations": 0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            CenteredClipping(**settings)
    assert CenteredClipping().tolerates(9) is None
