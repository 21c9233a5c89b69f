"""How many classes a client has learned."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.knowledge import changed


def breadth(opinions: Tensor, before: Tensor, labels: Tensor) -> Tensor:
    """(n,) float64 b_i in [0, 1] of clients with logits ``opinions`` (n, M, C); 0 where they overflow or learned none.

        u_ic = max(0, the mean of z_i(x)_c over the samples x of class c),        z_i as in ``knowledge``
        b_i = (Σ_c u_ic)² / (C Σ_c u_ic²)

    The effective number of classes whose own samples a client says more of than ``before`` (M, C), as a share of the C
    classes of which there are ``labels`` (M,): 1 if all by the same, 1/C if one alone.  A client of one class says less
    of all others, the more so the more the model knew of them; these do not count.
    """
    asked, change = labels.unique(), changed(opinions, before)
    said = torch.stack([change[:, labels == c, c].mean(dim=1) for c in asked], dim=1)
    learned = said.clamp_min(0)
    return (learned.sum(dim=1).square() / (len(asked) * learned.square().sum(dim=1))).nan_to_num(nan=0.0).cpu()
