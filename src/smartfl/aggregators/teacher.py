"""An ensemble of client models as a teacher for unlabelled samples."""

from __future__ import annotations

from math import log
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Ensemble = Literal["avg_logits", "avg_probs"]


def teacher_probabilities(
    logits: Tensor, ensemble: Ensemble = "avg_logits", temperature: float = 1.0, sharpening: float = 1.0
) -> Tensor:
    """(N, C) float64 pseudo-labels q from member ``logits`` (k, N, C), every member counting once.

        avg_logits   q = softmax(z̄ / T),          z̄ = (1/k) Σ z_i            Lin et al. 2020 (FedDF)
        avg_probs    q ∝ q̄^{1/τ},                 q̄ = (1/k) Σ softmax(z_i / T)   Chen & Chao 2021 (FedBE), τ = 0.5

    τ = ``sharpening`` works on both; 1 changes nothing.  One member of given logits (N, C) is ``logits[None]``.
    """
    z = logits.to(torch.float64)  # k logits near the end of float32 would overflow in the sum
    if ensemble == "avg_logits":
        log_q = F.log_softmax(z.mean(dim=0) / temperature, dim=-1)
    else:
        log_q = torch.log_softmax(z / temperature, dim=-1).logsumexp(dim=0) - log(len(z))
    return torch.softmax(log_q / sharpening, dim=-1)


def unbiased_labels(logits: Tensor) -> Tensor:
    """(N,) pseudo-labels from member ``logits`` (k, N, C), without any member's favourite class.

        ẑ_i = (z_i − mean over samples − mean over classes) / its root mean square,    y = argmax_c Σ_i ẑ_i

    A client that knows few classes says those about everything, and a mean of logits says what most clients have seen.
    What a client says *more* about one sample than about the others is knowledge, and it is all that is left after its
    mean over the samples is gone.  Unit scale makes every member count once, however loud it is.  Supposes that the
    samples hold the classes about equally often.
    """
    z = logits.to(torch.float64)
    z = z - z.mean(dim=2, keepdim=True)
    if z.shape[1] > 1:
        z = z - z.mean(dim=1, keepdim=True)
    size = z.square().mean(dim=(1, 2), keepdim=True).sqrt()
    return (z / size.clamp_min(torch.finfo(z.dtype).tiny)).sum(dim=0).argmax(dim=1)


def distillation_loss(q: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(q ‖ softmax(z/T)): summed over classes, mean over the batch; ``q`` and ``logits`` (b, C).

    No T² factor, as in FedDF's code.  0 means that the student says what the teacher says.
    """
    return F.kl_div(F.log_softmax(logits / temperature, dim=-1), q.to(logits.dtype), reduction="batchmean")
