"""Where to start the search: with the clients whose updates lead downhill from the last global model."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.distances import distances_to
from smartfl.aggregators.hull import Hull, Loss
from smartfl.products import inner_products
from smartfl.types import Updates


def agreeing(hull: Hull, updates: Updates, loss: Loss) -> Tensor | None:
    """(n,) float64 p_i ∝ max(0, cos(Δ_i, −g)) with g = ∂L/∂w at the global model w^t; None if no client agrees.

    FLTrust's trust score (Cao et al. 2021) with one full-batch gradient for the server's update.  The average of mostly
    malicious clients can be a model that says the same about every sample; the gradient there tells clients apart no
    more, and a search that starts there stays.  At w^t, which the last round found, it does.
    """
    trained = updates.spec.num_parameters  # running statistics do not follow a gradient
    g, origin = hull.slope(updates.origin, loss)[:trained], updates.origin[:trained]
    downhill = inner_products(updates.parameters, -g).cpu() + float(g.to(torch.float64) @ origin.to(torch.float64))
    lengths = distances_to(updates.parameters, origin).cpu().to(torch.float64)
    scores = torch.where(lengths > 0, downhill / lengths, 0).clamp_min(0)
    total = scores.sum()
    return scores / total if torch.isfinite(total) and total > 0 else None
