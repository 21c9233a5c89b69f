"""How far to follow weights that were fitted to few samples."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

STEPS = 4  # of the way back to the resting weights


def restrained(
    p: Tensor, rest: Tensor, fit: Callable[[Tensor], float], before: float, samples: int, strength: float
) -> tuple[Tensor, float]:
    """p(t) = (1 − t) p + t r for the t of {0, ¼, ½, ¾, 1} with the lowest  L(p(t)) + κ (1 − t) df / N,  and t.

    p was found on N = ``samples`` samples, whose loss at w(q) is L(q) = ``fit(q)``; r = ``rest`` are the weights of
    clients of whom nothing is known.  A fit with df free parameters looks better on its own samples than on others by
    about df/N a sample (Akaike 1974), so where p does not gain that much over r, the gain is chance, and what p has
    given up for it, the average over many clients, is not.  The parameters are the effective clients, as far as their
    weights were moved; of weights for L layers, ``p`` (L, n) in place of (n,), the mean over the layers:

        df = (1/Σp² − 1) · ½ ‖p − r‖₁,      κ = ``strength``

    Chance does not excuse a loss that rises round by round, each time by less than can be told: as far as p allows it,
    only mixes with L(p(t)) ≤ ``before``, the loss of the last global model, are taken.
    A mix that overflows has L = ∞ and is not chosen while another is finite.
    """
    rows = p.view(-1, len(rest))
    df = sum((float(1 / q.square().sum()) - 1) * float((q - rest).abs().sum()) / 2 for q in rows) / len(rows)
    ways = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64).tolist()
    mixes = [torch.lerp(p, rest, t) for t in ways]
    fits = [fit(mix) for mix in mixes]
    most = max(before, fits[0])
    costs = [f + strength * (1 - t) * df / samples if f <= most else inf for f, t in zip(fits, ways, strict=True)]
    best = min(range(len(ways)), key=costs.__getitem__)
    return mixes[best], ways[best]
