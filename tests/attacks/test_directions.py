from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from smartfl.attacks.directions import sacrificed, scaled_to, steered, trained, watched
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Updates


def test_watched_directions_by_hand() -> None:
    """Δ = (1, −3), (3, −5): mean (2, −4), std √2; negate = −(2, −4)·5/√20, spread = (−√2, √2)."""
    found = watched(torch.tensor([[1.0, -3.0], [3.0, -5.0]], dtype=torch.float64), 5.0)
    np.testing.assert_allclose(found["negate"].numpy(), np.array([-2, 4]) * 5 / 20**0.5)
    np.testing.assert_allclose(found["spread"].numpy(), [-(2**0.5), 2**0.5])


def test_steered_walks_downhill_on_parameters_only() -> None:
    """Objective 3x + 4y + 100z at (0, 0, 0) with z a buffer: every step goes along −(3, 4)/5."""
    offset = steered(lambda v: v @ torch.tensor([3.0, 4.0, 100.0]), torch.zeros(3), 2, 2.0, 5)
    np.testing.assert_allclose(offset.numpy(), [-1.2, -1.6], rtol=1e-6)


def test_a_flat_or_broken_objective_gives_no_direction() -> None:
    assert steered(lambda v: (v * 0).sum(), torch.ones(3), 3, 1.0, 2).tolist() == [0, 0, 0]
    assert steered(lambda v: (v * torch.nan).sum(), torch.ones(3), 3, 1.0, 2).tolist() == [0, 0, 0]
    assert scaled_to(torch.zeros(2), 3.0).tolist() == [0, 0]


def test_the_rarest_class_is_sacrificed() -> None:
    """In the stand-in class 0 occurs twice, 1 once, 2 never; 2 is not among the held-out labels, so 1."""
    assert sacrificed(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 3) == 1
    assert sacrificed(torch.tensor([0, 2]), torch.tensor([0, 0, 1]), 3) == 2


@pytest.fixture
def problem() -> tuple[Updates, nn.Module, Proxy]:
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(4, 3)
    spec = FlatSpec.of(model)
    labels = torch.randint(3, (60,), generator=generator)
    inputs = torch.randn(60, 4, generator=generator) + 2 * torch.eye(3, 4)[labels]
    return Updates.of(torch.zeros(2, spec.size), spec=spec), model, Proxy(inputs, labels, 3)


def test_trained_directions_do_what_they_say(problem: tuple[Updates, nn.Module, Proxy]) -> None:
    updates, model, proxy = problem
    labels = proxy.labels
    assert labels is not None
    start = torch.zeros(updates.spec.size)
    found = trained(updates, model, start, proxy, 1, 0.5, 5)

    def loss(vector: torch.Tensor, targets: torch.Tensor, where: torch.Tensor) -> float:
        return float(cross_entropy(updates.spec.functional_call(model, vector, proxy.inputs[where]), targets[where]))

    every, hit = torch.ones(60, dtype=torch.bool), labels == 1
    flipped = (labels + 1) % 3
    assert loss(found["ascent"], labels, every) > loss(start, labels, every) + 0.1
    assert loss(found["flip"], flipped, every) < loss(start, flipped, every) - 0.1
    assert loss(found["class"], labels, hit) > loss(start, labels, hit) + 0.1
    assert loss(found["class"], labels, ~hit) < loss(start, labels, ~hit)
    for direction in found.values():
        assert float(direction.norm()) == pytest.approx(0.5, rel=1e-5)


def test_one_class_is_enough(problem: tuple[Updates, nn.Module, Proxy]) -> None:
    """An attacker whose samples are all of the victim's class has no others to please."""
    updates, model, proxy = problem
    only = Proxy(proxy.inputs, torch.ones(60, dtype=torch.int64), 3)
    found = trained(updates, model, torch.zeros(updates.spec.size), only, 1, 0.5, 3)
    assert all(torch.isfinite(direction).all() and direction.norm() > 0 for direction in found.values())
