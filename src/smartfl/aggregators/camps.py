"""Whether clients fall into two camps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SPLITS = 9  # starts of the fit: the lowest tenth of the numbers, two tenths, …, against the rest
STEPS = 100
NARROWEST = 1e-3  # a camp's variance in that of all; without a limit two equal numbers would be a camp
NOWHERE = 0.25  # of the upper camp's mean: a lower one that gets no further contradicts
SMALLEST = 0.1  # of all numbers: what a camp must hold
APART = 3.5  # standard deviations; many numbers that are spread evenly look like two camps 3 apart
FEW = 5  # numbers; how far apart single groups look grows as the numbers get fewer, about as 1 + FEW / n
TURNS = 5  # of fitting the means of rounds to the camps and the camps to the means


@dataclass(frozen=True, eq=False)
class Camps:
    """Two normal distributions of one variance, fitted to n numbers."""

    lower: Tensor  # (n,) float64 how far each number is in the lower one
    apart: float  # their means, in standard deviations
    gain: float  # twice the log-likelihood over that of a single one


@dataclass(frozen=True, eq=False)
class Places:
    """Where n clients stand between two camps whose means are known."""

    x: Tensor  # (n,) float64: −½ in the middle of the lower camp, ½ in that of the upper one
    known: Tensor  # (n,) bool: of whom a round tells it
    reach: float  # how far the lower camp gets, in what the upper one does; infinite if that gets nowhere


def lower_camp(who: Tensor, when: Tensor, c: Tensor) -> Tensor:
    """(n,) bool: who of n clients is in the lower of two camps; nobody if there is but one.

    Entry e says that client ``who[e]`` (0 … n − 1) had the number ``c[e]`` in round ``when[e]`` (0 … R − 1).  Numbers
    of different rounds do not compare: all shrink as a model learns, and each camp in its own way.  So a camp has a
    mean of its own in every round, l_r and u_r, around which its members lie with variance v_r, and a client's place is

        x_i = Σ_r w_r (c_ir − (l_r + u_r)/2) / (u_r − l_r) / Σ_r w_r,      w_r = (u_r − l_r)² / v_r,

    −½ in the middle of the lower camp and ½ in that of the upper one (a latent class model, Lazarsfeld and Henry 1968).
    Rounds in which one of the camps has nobody, or the lower one is ahead, say nothing.  Means are fitted to camps and
    camps to places in turns, from two starts, of which the one counts that explains more: the slopes by which a
    client's numbers follow the size m of its rounds (the median |c|: a few with large numbers do not decide it),
    Σ m c / Σ m², and its mean distance from its rounds' means, in their standard deviations.  From one start alone the
    turns now and then end where there is nothing to see.

    There are two camps if two distributions explain the places better than chance lets them, by Akaike's criterion with
    Hurvich and Tsai's (1989) correction for few numbers (up to six cannot be told apart); if they are 3.5 (1 + 5/n)
    standard deviations from each other, farther than one group that is spread evenly seems to be from itself; and if
    the lower one gets next to nowhere where the upper one gets anywhere, u_r > 0: to a quarter of it by least squares,

        Σ u_r l_r / Σ u_r² ≤ ¼.

    Late rounds, in which even honest clients lead away from what a model knows already, do not say who lies.
    """
    n = int(who.max()) + 1 if len(who) else 0
    nobody = torch.zeros(n, dtype=torch.bool)
    settled = [found for start in _starts(who, when, c, n) if (found := _settled(start, who, when, c)) is not None]
    if not settled:
        return nobody
    camps, places = max(settled, key=lambda found: found[0].gain)
    seen = int(places.known.sum())
    camp = nobody.index_put((places.known.nonzero().flatten(),), camps.lower > 0.5)
    better = camps.gain > _akaike(4, seen) - _akaike(2, seen)
    distant = camps.apart >= APART * (1 + FEW / seen)
    least = max(2, SMALLEST * seen)
    enough = least <= int(camp.sum()) <= seen - least
    return camp if better and distant and enough and places.reach <= NOWHERE else nobody


def _starts(who: Tensor, when: Tensor, c: Tensor, n: int) -> list[Tensor]:
    """(n,) how far each client is in the lower camp, by its slope and by its distance from its rounds' means."""
    if n == 0:
        return []
    rounds = [c[when == r] for r in range(int(when.max()) + 1)]
    size = torch.stack([x.abs().median() for x in rounds])[when]
    slope = _sums(who, size * c, n) / _sums(who, size.square(), n)
    mean = torch.stack([x.mean() for x in rounds])[when]
    spread = torch.stack([x.std(correction=0) for x in rounds])[when]
    distance = torch.where(spread > 0, (c - mean) / spread, 0.0)
    return [
        camps.lower
        for x in (slope, _sums(who, distance, n) / _sums(who, torch.ones_like(c), n))
        if (camps := two_camps(x)) is not None
    ]


def _settled(lower: Tensor, who: Tensor, when: Tensor, c: Tensor) -> tuple[Camps, Places] | None:
    """Where camps that begin as ``lower`` (n,) says end; None if no round tells them apart."""
    found: tuple[Camps, Places] | None = None
    for _ in range(TURNS):
        places = _places(lower, who, when, c)
        camps = None if places is None else two_camps(places.x[places.known], lower[places.known])
        if places is None or camps is None:
            return None
        lower = lower.index_put((places.known.nonzero().flatten(),), camps.lower)
        found = camps, places
    return found


def two_camps(x: Tensor, lower: Tensor | None = None) -> Camps | None:
    """Two camps of ``x`` (n,) by expectation maximisation, from ``lower`` (n,) or the best of several starts.

    A few that lie far outside would be a camp for themselves and hide the others, so x is first cut off at half the
    width of the middle 80 % below and above it.  None where all numbers are one, or not finite.

    (A fit of our own: scikit-learn's takes a second to import, and from random starts finds one camp twice.)
    """
    n = len(x)
    if n == 0:
        return None
    few, ranked = math.floor(SMALLEST * n), x.sort().values
    reach = float(ranked[n - 1 - few] - ranked[few]) / 2
    x = x.clamp(float(ranked[few]) - reach, float(ranked[n - 1 - few]) + reach)
    spread = float(x.std(correction=0))
    if not 0 < spread < math.inf:
        return None
    z = (x - x.mean()) / spread
    if lower is None:
        places = torch.arange(1, SPLITS + 1) * n / (SPLITS + 1)
        g = (z.argsort().argsort() < places[:, None]).to(torch.float64)  # (starts, n) how far each is in the lower camp
    else:
        g = lower[None]
    g = g[(g.sum(dim=1) > 0) & (g.sum(dim=1) < n)]
    if len(g) == 0:
        return None
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
    return Camps(g[best], float((high - low)[best] / variance[best].sqrt()), gain)


def _places(lower: Tensor, who: Tensor, when: Tensor, c: Tensor) -> Places | None:
    """Places of clients who are as far in the lower camp as ``lower`` (n,) says; None if no round says anything."""
    g, rounds = lower[who], int(when.max()) + 1
    count, below = _sums(when, torch.ones_like(c), rounds), _sums(when, g, rounds)
    low = _sums(when, g * c, rounds) / below
    high = _sums(when, (1 - g) * c, rounds) / (count - below)
    variance = _sums(when, g * (c - low[when]) ** 2 + (1 - g) * (c - high[when]) ** 2, rounds) / count
    tells = (below >= 1) & (count - below >= 1) & (high > low)
    if not tells.any():
        return None
    width = torch.where(tells, high - low, 1.0)
    weight = torch.where(tells, width**2 / torch.maximum(variance, NARROWEST * width**2), 0.0)
    place = torch.where(tells[when], (c - (low + high)[when] / 2) / width[when], 0.0)
    n = len(lower)
    weights = _sums(who, weight[when], n)
    ahead = tells & (high > 0)
    reach = float(high[ahead] @ low[ahead] / (high[ahead] @ high[ahead]))
    return Places(
        x=_sums(who, weight[when] * place, n) / weights,
        known=weights > 0,
        reach=reach if ahead.any() else math.inf,
    )


def _sums(index: Tensor, values: Tensor, n: int) -> Tensor:
    """(n,) the sums of ``values`` by ``index``."""
    return torch.zeros(n, dtype=torch.float64).index_add(0, index, values)


def _akaike(parameters: int, n: int) -> float:
    """What ``parameters`` fitted to n numbers must gain, in twice the log-likelihood."""
    left = n - parameters - 1
    return 2 * parameters + 2 * parameters * (parameters + 1) / left if left > 0 else math.inf
