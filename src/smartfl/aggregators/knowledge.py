"""Whether what a client has changed is what the labels ask for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def knowledge(opinions: Tensor, before: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """(n,) float64 k_i in [−1, 1] of clients with logits ``opinions`` (n, M, C); 0 where they overflow.

        z_i = opinions_i − before, without its mean over the classes of a sample
        r_ic = the correlation over the samples of z_i(x)_c with [y = c]
        k_i = Σ_c m_ic r_ic / Σ_c m_ic,        m_ic = the mean over the samples of z_i(x)_c²

    ``before`` (M, C) are the logits of the model that all clients began with, ``labels`` (M,) the samples' and
    ``weights`` (M,) what they count.  A client of few classes says those about everything, which is its class histogram
    and no lie, and it unlearns the others, which is no lie either.  What it says more about one sample than about the
    others either follows the labels or does not, and it is asked about the classes that it has moved.  Unlike the
    cosine of its update with the gradient (``agreement``) this is of the whole step that the client took.
    """
    change = changed(opinions, before)
    share = (weights / weights.sum()).to(change)
    is_class = F.one_hot(labels, change.shape[2]).to(change)
    is_class = is_class - share @ is_class
    rest = change - torch.einsum("m,nmc->nc", share, change)[:, None]
    size, spread = (torch.einsum("m,nmc->nc", share, x.square()) for x in (change, rest))
    asked = share @ is_class.square()  # 0 of a class that no sample has
    said = torch.einsum("m,nmc,mc->nc", share, rest, is_class) / (spread * asked).sqrt()
    said = torch.where(spread > 1e-12 * size, said, 0.0)  # what rounding leaves of a class said of all alike is nothing
    size = torch.where(asked > 0, size, 0.0)
    known = (size * said.nan_to_num(nan=0.0)).sum(dim=1) / size.sum(dim=1)
    return known.nan_to_num(nan=0.0).clamp(-1, 1).cpu()


def changed(opinions: Tensor, before: Tensor) -> Tensor:
    """(n, M, C) float64 z_i: what every client has changed of a sample's logits, without its mean over the classes."""
    change = opinions.to(torch.float64) - before
    return change - change.mean(dim=2, keepdim=True)
