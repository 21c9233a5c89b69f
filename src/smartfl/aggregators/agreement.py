"""Whose updates lead downhill from the last global model."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.distances import distances_to
from smartfl.aggregators.hull import Hull, Loss
from smartfl.products import inner_products
from smartfl.types import Updates


def agreement(hull: Hull, updates: Updates, loss: Loss) -> Tensor:
    """(n,) float64 cos(Δ_i, −g) with g = ∂L/∂w at the global model w^t; 0 where one of the two is zero or overflows.

    FLTrust's trust score (Cao et al. 2021) before it is cut off at 0, with one full-batch gradient for the server's
    update.  The average of mostly malicious clients can be a model that says the same about every sample; the gradient
    there tells clients apart no more.  At w^t, which the last round found, it does.
    """
    trained = updates.spec.num_parameters  # running statistics do not follow a gradient
    g, origin = hull.slope(updates.origin, loss)[:trained], updates.origin[:trained]
    downhill = inner_products(updates.parameters, -g).cpu() + float(g.to(torch.float64) @ origin.to(torch.float64))
    lengths = distances_to(updates.parameters, origin).cpu() * float(g.to(torch.float64).norm())
    return (downhill / lengths).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-1, 1)


def agreeing(cosines: Tensor) -> Tensor | None:
    """(n,) p_i ∝ max(0, cos_i): the search's start with those who agree with the server; None if nobody does."""
    scores = cosines.clamp_min(0)
    return scores / scores.sum() if scores.any() else None
