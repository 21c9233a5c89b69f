"""Cross-entropy with the scale of the logits taken out, at a price (docs/method.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor


def class_balance(labels: Tensor, num_classes: int) -> Tensor:
    """(N,) sample weights c_y = 1 / (number of samples of class y), with mean 1: every class counts the same."""
    counts = torch.bincount(labels, minlength=num_classes)
    weights = 1 / counts[labels].to(torch.float64)
    return weights * (len(labels) / weights.sum())


def log_prior(labels: Tensor, num_classes: int) -> Tensor:
    """(C,) ln π_c up to a constant: 0 for classes that have samples, ln(C/N) ≤ 0 for those that have none.

    Cross-entropy rewards never to predict a class without samples, and so prefers clients that do not know it.  Logit
    adjustment (Menon et al. 2021) adds the log of the class frequencies; balanced classes have 1/C, and of N samples
    without one of a class its frequency is put at 1/N.  A model that predicts the class against the labels still pays.
    """
    missing = torch.bincount(labels, minlength=num_classes) == 0
    return missing.to(torch.float64) * min(0.0, math.log(num_classes / len(labels)))


def logit_scale(logits: Tensor) -> float:
    """ζ, the median over clients of the spread of their ``logits`` (n, N, C) around each sample's mean."""
    z = logits.to(torch.float64)
    spread = (z - z.mean(dim=2, keepdim=True)).square().mean(dim=(1, 2)).sqrt()
    # A client that overflows counts as large; between two of them there is nothing to interpolate (∞ − ∞).
    return float(spread.nan_to_num(nan=torch.inf).quantile(0.5, interpolation="midpoint").nan_to_num(nan=torch.inf))


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

    Convex in s: the slope, the weighted mean of E_q[z − z_y] plus price under q = softmax(s·z), changes sign once, and
    its own slope is the mean of Var_q(z).  Newton's steps on log s, bisection wherever they leave the bracket or do not
    halve.  Where every sample is right and nothing is left to gain in float64, s stays as small as that allows.
    """
    # Classes in rows: sums over a sample's classes then run along whole vectors of samples.
    z = logits.detach().to("cpu", torch.float64).T.contiguous()
    y = z - z.gather(0, labels.cpu()[None])
    c = weights.to(z)
    c = c / c.sum()
    least = 1e-16 * float(y.abs().max())

    def slopes(scale: float) -> tuple[float, float]:
        q_y = torch.softmax(z * scale, dim=0) * y
        mean = q_y.sum(dim=0)
        return float(c @ mean) + price + least, float(c @ ((q_y * y).sum(dim=0) - mean.square()))

    a, b = math.log(low), math.log(high)
    u, last = a, math.inf
    slope, curvature = slopes(low)
    if not slope < 0:  # nothing to gain; or logits that are not finite, which no scale can help
        return low
    for _ in range(100):
        step = -slope / (curvature * math.exp(u)) if curvature > 0 else math.inf
        if not (a <= u + step <= b and abs(step) <= last / 2):
            step = (a + b) / 2 - u
        u, last = u + step, abs(step)
        if last < 1e-9:
            break
        slope, curvature = slopes(math.exp(u))
        a, b = (u, b) if slope < 0 else (a, u)
    return math.exp(u)


@dataclass(eq=False)
class CalibratedLoss:
    """Σ_x c_x CE(s·z(x) + ln π, y) / Σ c of a mini-batch, at a scale s that ``refit`` chooses.

    latest    (N, C) the last logits seen of every sample; the loss keeps them up to date
    labels, weights, prior   (N,), (N,), (C,)
    price     of scale
    """

    latest: Tensor
    labels: Tensor
    weights: Tensor
    prior: Tensor
    price: float
    scale: float = field(default=1.0, init=False)

    @classmethod
    def of(cls, labels: Tensor, num_classes: int, price: float = 0.0) -> CalibratedLoss:
        """The loss of samples with ``labels`` (N,) before anything is known of their logits: scale 1."""
        unknown = torch.zeros(len(labels), num_classes, device=labels.device)
        return cls(unknown, labels, class_balance(labels, num_classes), log_prior(labels, num_classes), price)

    def refit(self) -> None:
        """The best scale for the latest logits: a pass over all samples would cost half as much as an epoch."""
        self.scale = best_scale(self.latest, self.labels, self.weights, self.price, low=1.0)

    def refitted(self, logits: Tensor) -> CalibratedLoss:
        """The same loss at the best scale for ``logits`` (N, C) of all samples."""
        there = replace(self, latest=logits.detach().clone())
        there.refit()
        return there

    def value(self, logits: Tensor) -> float:
        """min_s of the loss of all samples, whose logits are ``logits`` (N, C), plus price·s; ∞ if they overflow."""
        fit, scale = self._at_its_best(logits)
        return fit + self.price * scale

    def fit(self, logits: Tensor) -> float:
        """The loss itself at the scale that ``value`` chooses, without what the scale costs."""
        return self._at_its_best(logits)[0]

    def _at_its_best(self, logits: Tensor) -> tuple[float, float]:
        if not torch.isfinite(logits).all():
            return math.inf, 1.0
        there = self.refitted(logits)
        return float(there(logits, torch.arange(len(logits)))), there.scale

    def __call__(self, logits: Tensor, index: Tensor) -> Tensor:
        """The loss of the samples ``index`` (b,), whose logits are ``logits`` (b, C)."""
        self.latest[index] = logits.detach().to(self.latest)
        c = self.weights[index].to(logits)
        each = F.cross_entropy(logits * self.scale + self.prior.to(logits), self.labels[index], reduction="none")
        return (c * each).sum() / c.sum()
