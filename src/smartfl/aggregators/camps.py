"""Whether numbers fall into two camps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SPLITS = 9  # starts of the fit: the lowest tenth of the numbers, two tenths, …, against the rest
STEPS = 100
NARROWEST = 1e-3  # a camp's variance in that of all; without a limit two equal numbers would be a camp
NOWHERE = 0.25  # of the upper camp's mean: a lower one that gets no further contradicts
SMALLEST = 0.1  # of all numbers: what a camp must hold
APART = 3.5  # standard deviations; many numbers that are spread evenly look like two camps 3 apart
FEW = 5  # numbers; how far apart single groups look grows as the numbers get fewer, about as 1 + FEW / n


def lower_camp(x: Tensor) -> Tensor:
    """(n,) bool: who of ``x`` (n,) is in the lower of two camps; nobody if there is but one.

    Two normal distributions of one variance are fitted to x by expectation maximisation (from several starts, best
    likelihood), and one.  There are two camps if two explain x better than chance lets them, by Akaike's criterion with
    Hurvich and Tsai's (1989) correction for few numbers (up to six cannot be told apart); if they are 3.5 (1 + 5/n)
    standard deviations from each other, farther than one group that is spread evenly seems to be from itself; if the
    upper one is above 0; and if the lower one gets next to nowhere: its mean is at most a quarter of the upper one's.

    A few that lie far outside would be a camp for themselves and hide the others, so both camps hold a tenth of all
    and two at least, and x is first cut off at half the width of the middle 80 % below and above it.

    (A fit of our own: scikit-learn's takes a second to import, and from random starts finds one camp twice.)
    """
    n, nobody = len(x), torch.zeros(len(x), dtype=torch.bool)
    few, ranked = math.floor(SMALLEST * n), x.sort().values
    if n == 0:
        return nobody
    reach = float(ranked[n - 1 - few] - ranked[few]) / 2
    x = x.clamp(float(ranked[few]) - reach, float(ranked[n - 1 - few]) + reach)
    spread = float(x.std(correction=0))
    if not 0 < spread < math.inf:
        return nobody
    z = (x - x.mean()) / spread
    places = torch.arange(1, SPLITS + 1) * n / (SPLITS + 1)
    g = (z.argsort().argsort() < places[:, None]).to(torch.float64)  # (splits, n) how far each is in the lower camp
    g = g[(g.sum(dim=1) > 0) & (g.sum(dim=1) < n)]
    for _ in range(STEPS):
        share = g.mean(dim=1, keepdim=True).clamp(1e-9, 1 - 1e-9)
        low = (g @ z)[:, None] / (n * share)
        high = ((1 - g) @ z)[:, None] / (n * (1 - share))
        variance = (g * (z - low) ** 2 + (1 - g) * (z - high) ** 2).mean(dim=1, keepdim=True).clamp_min(NARROWEST)
        below = share.log() - (z - low) ** 2 / (2 * variance)
        above = (1 - share).log() - (z - high) ** 2 / (2 * variance)
        last, g = g, torch.sigmoid(below - above)
        if torch.allclose(g, last, rtol=0, atol=1e-6):
            break
    likelihood = torch.logaddexp(below, above).sum(dim=1) - n / 2 * variance.log()[:, 0]
    best = int(likelihood.argmax())
    gain = 2 * (float(likelihood[best]) + n / 2)  # one camp: variance 1, Σ z²/2 = n/2
    lower, upper = (float(x.mean() + spread * m[best]) for m in (low, high))
    better = gain > _akaike(4, n) - _akaike(2, n)
    distant = float((high - low)[best] / variance[best].sqrt()) >= APART * (1 + FEW / n)
    camp = g[best] > 0.5
    least = max(2, SMALLEST * n)
    enough = least <= int(camp.sum()) <= n - least
    return camp if better and distant and enough and upper > 0 and lower <= NOWHERE * upper else nobody


def _akaike(parameters: int, n: int) -> float:
    """What ``parameters`` fitted to n numbers must gain, in twice the log-likelihood."""
    left = n - parameters - 1
    return 2 * parameters + 2 * parameters * (parameters + 1) / left if left > 0 else math.inf
