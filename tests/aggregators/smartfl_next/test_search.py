"""Normalised natural gradient on the simplex."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from smartfl.aggregators.smartfl_next.search import NaturalGradient
from smartfl.errors import UserError

START = torch.tensor([0.5, 0.5], dtype=torch.float64)
BATCHES = itertools.repeat(torch.arange(1))


def search(gradient: list[float], steps: int = 1, momentum: float = 0.0) -> list[float]:
    g = torch.tensor(gradient, dtype=torch.float64)
    return NaturalGradient(0.5, momentum)(START, lambda p, index: g, BATCHES, steps).tolist()


def test_one_step_by_hand():
    """g − p·g = (1, −1), of length 1: θ = (−½, ½), p ∝ (e^−½, e^½)."""
    assert search([3.0, 1.0]) == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])


def test_the_unit_of_the_loss_and_what_all_clients_share_do_not_matter():
    assert search([3.0, 1.0], 5, 0.5) == pytest.approx(search([1e6 + 3e-3, 1e6 + 1e-3], 5, 0.5), rel=1e-6)


def test_two_steps_by_hand():
    """The second step is half as long: p = (a, b) with b/a = e, m ∝ (b, −a), of length √(ab² + ba²)."""
    a, b = 1 / (1 + math.e), math.e / (1 + math.e)
    length = math.sqrt(a * b**2 + b * a**2)
    difference = 1 + 0.25 * (a + b) / length
    assert search([3.0, 1.0], 2)[1] == pytest.approx(1 / (1 + math.exp(-difference)))


def test_every_row_is_a_search_of_its_own():
    g = torch.tensor([[3.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    found = NaturalGradient(0.5, 0.5)(START.expand(2, -1), lambda p, index: g, BATCHES, 4)
    assert found[0].tolist() == pytest.approx(found[1].flip(0).tolist())
    assert found[0].tolist() == pytest.approx(search([3.0, 1.0], 4, 0.5))


def test_a_gradient_that_overflows_is_left_out():
    values = iter([torch.tensor([math.inf, 0.0]), torch.tensor([3.0, 1.0])])
    found = NaturalGradient(0.5, 0.0)(START, lambda p, index: next(values).to(torch.float64), BATCHES, 2)
    assert torch.isfinite(found).all()
    assert found[1] > found[0]


def test_it_finds_the_best_corner():
    target = torch.tensor([0.1, 0.7, 0.2], dtype=torch.float64)
    start = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = NaturalGradient()(start, lambda p, index: p - target, BATCHES, 60)
    assert found.tolist() == pytest.approx(target.tolist(), abs=0.02)


@pytest.mark.parametrize("settings", [{"rate": 0.0}, {"momentum": 1.0}, {"momentum": -0.1}])
def test_impossible_settings_are_refused(settings: dict[str, float]):
    with pytest.raises(UserError, match=next(iter(settings))):
        NaturalGradient(**settings)
