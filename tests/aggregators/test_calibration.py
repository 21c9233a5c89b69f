"""The scale that is taken out of the logits, and the weight of each class."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from smartfl.aggregators.calibration import (
    CalibratedLoss,
    best_scale,
    class_balance,
    log_prior,
    logit_scale,
    price_of_scale,
)


def loss_at(scale, logits, labels, weights):
    """Σ c_y CE(s·z, y) in NumPy."""
    z = scale * logits.double().numpy()
    z = z - z.max(axis=1, keepdims=True)
    each = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels.numpy()]
    return float((weights.numpy() * each).sum())


@pytest.mark.parametrize(("factor", "noise"), [(1.0, 1.0), (1e-3, 1.0), (30.0, 3.0)])
def test_best_scale_against_a_fine_grid(factor, noise):
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(0, 4, (64,), generator=generator)
    logits = torch.nn.functional.one_hot(labels, 4) + noise * torch.randn(64, 4, generator=generator)
    logits = logits * factor
    weights = class_balance(labels, 4)
    grid = np.exp(np.linspace(np.log(0.1), np.log(1e4), 4000))
    losses = [loss_at(s, logits, labels, weights) for s in grid]
    found = best_scale(logits, labels, weights)
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=5e-3)
    assert loss_at(found, logits, labels, weights) <= min(losses) * (1 + 1e-6)


def test_two_classes_by_hand():
    """z = (1, 0), three of four right: the optimum has σ(s) = 3/4, so s = log 3."""
    logits = torch.tensor([[1.0, 0.0]] * 4)
    scale = best_scale(logits, torch.tensor([0, 0, 0, 1]), torch.ones(4))
    assert scale == pytest.approx(np.log(3), rel=1e-5)


def test_weights_shift_the_optimum():
    """Class balance makes 3 right of one class worth 1 wrong of the other: σ(s) = 1/2, and s ends at its bound."""
    logits, labels = torch.tensor([[1.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    assert best_scale(logits, labels, class_balance(labels, 2)) == pytest.approx(0.1, rel=1e-4)


def test_bounds():
    right, labels = torch.eye(3), torch.arange(3)
    assert best_scale(right / 1e4, labels, torch.ones(3)) == pytest.approx(1e4, rel=1e-4)
    assert best_scale(-right, labels, torch.ones(3)) == pytest.approx(0.1, rel=1e-4)
    assert best_scale(right, labels, torch.ones(3), low=1.0, high=2.0) == pytest.approx(2, rel=1e-4)


def test_separable_samples_end_where_nothing_is_left_to_gain():
    right, labels, ones = torch.eye(3), torch.arange(3), torch.ones(3)
    assert loss_at(best_scale(right, labels, ones), right, labels, ones) < 1e-12


def test_scaling_the_logits_scales_the_answer_back():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (50,), generator=generator)
    logits = torch.randn(50, 3, generator=generator) + torch.nn.functional.one_hot(labels, 3)
    one = best_scale(logits, labels, torch.ones(50))
    assert best_scale(logits / 20, labels, torch.ones(50)) == pytest.approx(20 * one, rel=1e-4)


def test_every_class_counts_the_same_and_the_mean_is_one():
    """Counts 3, 1: weights ∝ 1/3, 1/3, 1/3, 1, scaled to sum 4. A missing class neither counts nor blows up."""
    weights = class_balance(torch.tensor([0, 0, 0, 2]), 3)
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2])
    assert float(weights.sum()) == pytest.approx(4)


def test_the_price_of_scale_by_hand():
    """n = 48 clients, N = 128 samples, ζ = 2: 2 √(2 · 3.871201 / 128) = 0.491885."""
    assert price_of_scale(2.0, 48, 128) == pytest.approx(0.491885, abs=1e-6)


def test_logit_scale_by_hand():
    """Client 0: logits ±1 around their mean, spread 1; client 1: ±3; client 2 overflows. The median is 3."""
    logits = torch.tensor([[[5.0, 7.0]], [[0.0, 6.0]], [[torch.inf, 0.0]]])
    assert logit_scale(logits) == pytest.approx(3.0)
    assert logit_scale(logits[:2]) == pytest.approx(2.0)


def test_the_spread_of_clients_that_overflow_is_large():
    """Spreads 1, ∞, ∞ and 1, 3, ∞, ∞: the middle is ∞, and between 3 and ∞ there is no number."""
    z = torch.tensor([[[1.0, -1.0]], [[3.0, -3.0]], [[torch.inf, 0.0]], [[0.0, torch.inf]]])
    assert logit_scale(z[[0, 2, 3]]) == torch.inf
    assert logit_scale(z) == torch.inf


def test_a_price_lowers_the_scale_to_where_the_slopes_meet():
    """One sample, logits (1, 0), label 0: CE' = −1/(1 + e^s), so a price of 0.1 gives s = ln 9 = 2.197225."""
    one, label, weight = torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.ones(1, dtype=torch.float64)
    assert best_scale(one, label, weight, price=0.1) == pytest.approx(2.197225, abs=1e-5)
    assert best_scale(one, label, weight, price=0.6, low=1.0) == pytest.approx(1.0, abs=1e-6)


def test_classes_without_samples_are_discounted_by_hand():
    """Eight samples of classes 0 and 3 of 4: ln(4/8) for the others; too few samples discount nothing."""
    assert log_prior(torch.tensor([0, 3] * 4), 4).tolist() == pytest.approx([0, math.log(0.5), math.log(0.5), 0])
    assert log_prior(torch.tensor([0, 1]), 4).tolist() == [0, 0, 0, 0]
    assert log_prior(torch.tensor([0, 1] * 50), 2).tolist() == [0, 0]


def test_the_calibrated_loss_by_hand():
    """Logits (ln 2, 0) at scale 1 and prior (0, ln ½): odds 4 : 1.  Weights 3 and 1: (3 ln 1.25 + ln 5) / 4."""
    logits = torch.tensor([[math.log(2.0), 0.0]] * 3, dtype=torch.float64)
    labels, weights = torch.tensor([0, 1, 0]), torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64)
    prior = torch.tensor([0.0, math.log(0.5)], dtype=torch.float64)
    loss = CalibratedLoss(torch.zeros(3, 2, dtype=torch.float64), labels, weights, prior, price=0.0)
    found = loss(logits[:2], torch.tensor([0, 1]))
    assert found.item() == pytest.approx((3 * math.log(1.25) + math.log(5)) / 4)
    assert torch.equal(loss.latest, torch.tensor([*logits[:2].tolist(), [0.0, 0.0]], dtype=torch.float64))
    loss.refit()
    assert loss.scale == best_scale(loss.latest, labels, weights, 0.0, low=1.0) > 1


def test_the_loss_at_its_best_with_and_without_its_price():
    """z = (1, 0), three of four right; at a price of ¼ the slope σ(s) − ¾ + ¼ is 0 at σ(s) = ½, so s = 0, which is
    below 1: s = 1, the loss ¼(3 ln(1 + e⁻¹) + ln(1 + e)) = 0.56326 and its value ¼ more."""
    logits, labels = torch.tensor([[1.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    loss = CalibratedLoss(torch.zeros(4, 2), labels, torch.ones(4, dtype=torch.float64), torch.zeros(2), price=0.25)
    assert loss.fit(logits) == pytest.approx(0.563262, abs=1e-6)
    assert loss.value(logits) == pytest.approx(0.813262, abs=1e-6)
    assert loss.fit(logits * torch.inf) == loss.value(logits * torch.inf) == math.inf
