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


def unbiased_labels(logits: Tensor, before: Tensor | None = None) -> Tensor:
    """(N,) pseudo-labels from member ``logits`` (k, N, C), without any member's favourite class.

        ẑ_i = (z_i − mean over samples − mean over classes) / its root mean square,    y = argmax_c median_i ẑ_i

    A client that knows few classes says those about everything, and a mean of logits says what most clients have seen.
    What a client says *more* about one sample than about the others is knowledge, and it is all that is left after its
    mean over the samples is gone.  Unit scale makes every member count the same, however loud it is, and the median
    counts members.  Where ``before`` (N, C) says what all of them began with, they are weighted by their ``voices``.
    Supposes that the samples hold the classes about equally often.
    """
    opinions = without_bias(logits)
    weights = torch.ones(len(opinions)) if before is None else voices(logits, before)
    return _weighted_median(opinions, weights.to(opinions)).argmax(dim=1)


def voices(logits: Tensor, before: Tensor) -> Tensor:
    """(k,) float64 v_i = min(1, s/s_i), s_i = Σ_j max(0, ρ_ij)², s their median: a choir has fewer voices than singers.

    ρ_ij is the correlation of what i and j changed: their ``logits`` (k, N, C) minus those of the model that all of
    them began with, ``before`` (N, C), without bias.  s_i counts who says the same as i.  Honest clients learn from
    different samples; attackers that push in one direction agree almost perfectly, and what is more than usual does not
    count (the sign of a Sybil in FoolsGold, Fung et al. 2020).
    """
    change = without_bias(logits.to(torch.float64) - before).flatten(1)
    alike = (change @ change.T / change.shape[1]).clamp_min(0).fill_diagonal_(1.0).square().sum(dim=1)
    return (alike.quantile(0.5) / alike).clamp_max(1)


def _weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """(…) the median of ``values`` (k, …), row i counting ``weights[i]``; the mean of the middle two where they tie."""
    ranked, order = values.sort(dim=0)
    below = weights[order].cumsum(dim=0) / weights.sum()
    middle = [(below >= 0.5 + tolerance).to(torch.int8).argmax(dim=0, keepdim=True) for tolerance in (-1e-9, 1e-9)]
    return torch.stack([ranked.gather(0, place)[0] for place in middle]).mean(dim=0)


def without_bias(logits: Tensor) -> Tensor:
    """(k, N, C) float64 ẑ: centred over classes and, if there are several, over samples; root mean square 1 or 0."""
    z = logits.to(torch.float64)
    z = z - z.mean(dim=2, keepdim=True)
    if z.shape[1] > 1:
        z = z - z.mean(dim=1, keepdim=True)
    size = z.square().mean(dim=(1, 2), keepdim=True).sqrt()
    return z / size.clamp_min(torch.finfo(z.dtype).tiny)


def distillation_loss(q: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(q ‖ softmax(z/T)): summed over classes, mean over the batch; ``q`` and ``logits`` (b, C).

    No T² factor, as in FedDF's code.  0 means that the student says what the teacher says.
    """
    return F.kl_div(F.log_softmax(logits / temperature, dim=-1), q.to(logits.dtype), reduction="batchmean")
