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
    given up for it, the average over many clients, is not.  df are the ``free_parameters`` of p, of weights for L
    layers, ``p`` (L, n) in place of (n,), the mean over the layers; κ = ``strength``.

    Chance does not excuse a loss that rises round by round, each time by less than can be told: as far as p allows it,
    only mixes with L(p(t)) ≤ ``before``, the loss of the last global model, are taken.
    A mix that overflows has L = ∞ and is not chosen while another is finite.
    """
    df = float(free_parameters(p, rest).mean())
    ways = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64).tolist()
    mixes = [torch.lerp(p, rest, t) for t in ways]
    fits = [fit(mix) for mix in mixes]
    most = max(before, fits[0])
    costs = [f + strength * (1 - t) * df / samples if f <= most else inf for f, t in zip(fits, ways, strict=True)]
    best = min(range(len(ways)), key=costs.__getitem__)
    return mixes[best], ways[best]


def free_parameters(p: Tensor, rest: Tensor) -> Tensor:
    """(L,) df_l = (1/Σp_l² − 1) · ½ ‖p_l − r‖₁ of weights ``p`` (L, n), or (n,): effective clients, as far as moved."""
    rows = p.view(-1, len(rest))
    return (1 / rows.square().sum(dim=1) - 1) * (rows - rest).abs().sum(dim=1) / 2
