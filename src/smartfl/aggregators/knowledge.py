"""Whether what a client has changed is what the labels ask for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.teacher import without_bias


def knowledge(opinions: Tensor, before: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """(n,) float64 k_i = cos(ẑ_i, r̂) in [−1, 1] of clients with logits ``opinions`` (n, M, C); 0 where they overflow.

        z_i = opinions_i − before,        r(x) = c_y (onehot(y) − softmax(before(x))),        both ``without_bias``

    ``before`` (M, C) are the logits of the model that all clients began with, ``labels`` (M,) the samples' and
    ``weights`` (M,) their c.  A client of few classes says those about everything, which is its class histogram and no
    lie; what it says more about one sample than about the others either follows the labels or does not.  Unlike the
    cosine of its update with the gradient (``agreement``) this is of the whole step that the client took.
    """
    asked = (F.one_hot(labels, before.shape[1]) - torch.softmax(before.to(torch.float64), dim=1)) * weights[:, None]
    change = without_bias(opinions.to(torch.float64) - before)
    return (change * without_bias(asked[None])).mean(dim=(1, 2)).nan_to_num(nan=0.0).clamp(-1, 1).cpu()
