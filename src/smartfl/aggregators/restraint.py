"""How far to follow weights that were fitted to few samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEPS = 4  # of the way back to the resting weights


def restrained(
    p: Tensor, rest: Tensor, loss: Callable[[Tensor], float], samples: int, strength: float
) -> tuple[Tensor, float]:
    """(n,) p(t) = (1 − t) p + t r for the t of {0, ¼, ½, ¾, 1} with the lowest  J(p(t)) + κ (1 − t) df / N,  and t.

    p was found by minimising J on N = ``samples`` samples; r = ``rest`` are the weights of clients of whom nothing is
    known.  A fit with df free parameters looks better on its own samples than on others by about df/N a sample (Akaike
    1974), so where p does not gain that much over r, the gain is chance, and what p has given up for it, the average
    over many clients, is not.  The parameters are the effective clients, as far as their weights were moved:

        df = (1/Σp² − 1) · ½ ‖p − r‖₁,      κ = ``strength``

    A mix that overflows has J = ∞ and is not chosen while another is finite.
    """
    df = (float(1 / p.square().sum()) - 1) * float((p - rest).abs().sum()) / 2
    ways = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64).tolist()
    mixes = [torch.lerp(p, rest, t) for t in ways]
    costs = [loss(mix) + strength * (1 - t) * df / samples for mix, t in zip(mixes, ways, strict=True)]
    best = min(range(len(ways)), key=costs.__getitem__)
    return mixes[best], ways[best]
