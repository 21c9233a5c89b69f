"""How many classes a client has learned."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.knowledge import changed


def breadth(opinions: Tensor, before: Tensor, labels: Tensor) -> Tensor:
    """(n,) float64 b_i in [0, 1] of clients with logits ``opinions`` (n, M, C); 0 where they overflow or learned none.

        u_ic = max(0, the mean of z_i(x)_c over the samples x of class c),        z_i as in ``knowledge``
        b_i = (E_i − 1) / (A − 1),        E_i = (Σ_c u_ic)² / Σ_c u_ic²

    E_i is the effective number of classes whose own samples client i says more of than ``before`` (M, C), among the A
    of which there are ``labels`` (M,): b is 0 if that is one alone, 1 if all by the same.  A client of one class says
    less of all others, the more so the more the model knew of them; these do not count.  Of an update that is noise
    half of the u are 0, and E is about A/π: b tells clients of one or two classes from others, not what they know.
    """
    asked, change = labels.unique(), changed(opinions, before)
    said = torch.stack([change[:, labels == c, c].mean(dim=1) for c in asked], dim=1)
    learned = said.clamp_min(0)
    classes = learned.sum(dim=1).square() / learned.square().sum(dim=1)
    share = ((classes - 1) / (len(asked) - 1)).nan_to_num(nan=0.0)
    return torch.where(change.isfinite().all(dim=2).all(dim=1), share, 0.0).cpu()
