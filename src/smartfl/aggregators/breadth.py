"""How many classes a client has to do with."""

from __future__ import annotations

import torch
from torch import Tensor

from smartfl.aggregators.knowledge import changed


def breadth(opinions: Tensor, before: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """(n,) float64 b_i in [0, 1] of clients with logits ``opinions`` (n, M, C); 0 where they overflow or stay.

        b_i = (Σ_c m_ic)² / (C Σ_c m_ic²),        m_ic as in ``knowledge``

    The effective number of classes that a client has moved, as a share of the C classes of which there are ``labels``
    (M,): 1 if all by the same, about 1/C if one alone.  ``before`` (M, C) and ``weights`` (M,) are those of
    ``knowledge``.  Among clients of few classes each may be the only one to know some, so that none can be spared.
    """
    share = (weights / weights.sum()).to(torch.float64)
    size = torch.einsum("m,nmc->nc", share, changed(opinions, before).square())
    size = size[:, labels.unique()]
    return (size.sum(dim=1).square() / (size.shape[1] * size.square().sum(dim=1))).nan_to_num(nan=0.0).cpu()
