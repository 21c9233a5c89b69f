"""Cross-entropy with the scale of the logits taken out, at a price (ALGORITHMS.md 1.9, docs/method.md)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def class_balance(labels: Tensor, num_classes: int) -> Tensor:
    """(N,) sample weights c_y = 1 / (number of samples of class y), with mean 1: every class counts the same."""
    counts = torch.bincount(labels, minlength=num_classes)
    weights = 1 / counts[labels].to(torch.float64)
    return weights * (len(labels) / weights.sum())


def logit_scale(logits: Tensor) -> float:
    """ζ, the median over clients of the spread of their ``logits`` (n, N, C) around each sample's mean."""
    z = logits.to(torch.float64)
    spread = (z - z.mean(dim=2, keepdim=True)).square().mean(dim=(1, 2)).sqrt()
    return float(spread.nan_to_num(nan=torch.inf).quantile(0.5))  # a client that overflows counts as large


def price_of_scale(scale: float, clients: int, samples: int) -> float:
    """λ = ζ √(2 ln n / N), the lasso's universal penalty for n candidate clients of logit scale ζ on N samples.

    In terms of unnormalised weights q = s·p ≥ 0 the calibrated loss is a regression of the labels on the clients'
    logits, and s = Σq its ℓ1 norm.  Below λ a client's contribution cannot be told from chance.
    """
    return scale * math.sqrt(2 * math.log(max(clients, 2)) / samples)


def best_scale(
    logits: Tensor, labels: Tensor, weights: Tensor, price: float = 0.0, low: float = 1e-1, high: float = 1e4
) -> float:
    """argmin_{s>0} of the weighted mean of CE(s·z(x), y) plus ``price``·s, within [low, high].

    Convex in s, so the slope ⟨softmax(s z), z⟩ − z_y (weighted mean) + price changes sign once: bisection on log s.
    """
    z = logits.detach().to("cpu", torch.float64)
    target = z.gather(1, labels.cpu()[:, None]).squeeze(1)
    c = weights.cpu()
    a, b = torch.tensor([low, high], dtype=torch.float64).log().tolist()
    for _ in range(30):
        middle = (a + b) / 2
        probabilities = F.softmax(z * torch.tensor(middle).exp(), dim=1)
        slope = float((c * ((probabilities * z).sum(dim=1) - target)).sum() / c.sum()) + price
        a, b = (middle, b) if slope < 0 else (a, middle)
    return float(torch.tensor((a + b) / 2, dtype=torch.float64).exp())
