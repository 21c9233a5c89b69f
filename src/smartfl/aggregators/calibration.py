"""Cross-entropy with the scale of the logits taken out (ALGORITHMS.md 1.9)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def class_balance(labels: Tensor, num_classes: int) -> Tensor:
    """(N,) sample weights c_y = 1 / (number of samples of class y), with mean 1: every class counts the same."""
    counts = torch.bincount(labels, minlength=num_classes)
    weights = 1 / counts[labels].to(torch.float64)
    return weights * (len(labels) / weights.sum())


def best_scale(logits: Tensor, labels: Tensor, weights: Tensor, low: float = 1e-1, high: float = 1e4) -> float:
    """argmin_{s>0} Σ_x c_y CE(s·z(x), y), within [low, high].

    The loss is convex in s, so its slope Σ_x c_y (⟨softmax(s z), z⟩ − z_y) changes sign once: bisection on log s.
    """
    z = logits.detach().to("cpu", torch.float64)
    target = z.gather(1, labels.cpu()[:, None]).squeeze(1)
    c = weights.cpu()
    a, b = torch.tensor([low, high], dtype=torch.float64).log().tolist()
    for _ in range(30):
        middle = (a + b) / 2
        probabilities = F.softmax(z * torch.tensor(middle).exp(), dim=1)
        slope = float((c * ((probabilities * z).sum(dim=1) - target)).sum())
        a, b = (middle, b) if slope < 0 else (a, middle)
    return float(torch.tensor((a + b) / 2, dtype=torch.float64).exp())
