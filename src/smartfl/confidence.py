"""What a round's result can be trusted for, judged by the server's own samples."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.types import Aggregate, Proxy

FEW = 10  # samples per class below which a class is as good as unseen: one sample is worth more than its tenth
SETTLED = 5  # rounds after which a model at chance level is no longer just young


def wilson_interval(correct: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a success rate after ``correct`` of ``total`` trials.

        (p + z²/2N ± z √(p(1 − p)/N + z²/4N²)) / (1 + z²/N)

    Wilson 1927.  Unlike p ± z √(p(1 − p)/N) it is never empty at 0 or 1 and holds for small N.
    """
    p, spread = correct / total, z * z / total
    centre = p + spread / 2
    half = z * math.sqrt(p * (1 - p) / total + spread / (4 * total))
    low, high = (centre - half) / (1 + spread), (centre + half) / (1 + spread)
    return max(0.0, min(p, low)), min(1.0, max(p, high))  # at 0 and 1 a bound is p itself, up to rounding


def proxy_statement(logits: Tensor, proxy: Proxy, t: int) -> tuple[float, dict[str, float], tuple[str, ...]]:
    """The loss of ``logits`` (N, C) on the labelled samples, their accuracy with its interval, and warnings.

    A rule that was fitted to these samples is flattered by them: docs/method.md has the measured coverage.
    """
    assert proxy.labels is not None
    labels = proxy.labels.to(logits.device)
    correct, total = int((logits.argmax(dim=1) == labels).sum()), len(labels)
    low, high = wilson_interval(correct, total)
    said = {"proxy_accuracy": correct / total, "proxy_accuracy_low": low, "proxy_accuracy_high": high}
    events = proxy_warnings(labels, proxy.num_classes) if t == 1 else ()
    largest = int(torch.bincount(labels).max())
    if t >= SETTLED and low <= max(largest / total, 1 / proxy.num_classes):
        events += (
            f"the new model gets {correct} of the server's {total} samples right, no better than always naming "
            f"one of the {proxy.num_classes} classes: samples and clients disagree, or clients hardly learn",
        )
    return F.cross_entropy(logits, labels).item(), said, events


def proxy_warnings(labels: Tensor, num_classes: int) -> tuple[str, ...]:
    """What is wrong with the server's samples before any model has seen them."""
    counts = torch.bincount(labels, minlength=num_classes)
    missing = torch.nonzero(counts == 0).flatten().tolist()
    said: tuple[str, ...] = ()
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        said += (
            f"the server's samples miss {len(missing)} of {num_classes} classes ({shown}): a client that knows only "
            "those looks useless",
        )
    scarce = [f"{c}: {n}" for c, n in enumerate(counts.tolist()) if 0 < n < FEW]
    if len(labels) < FEW * num_classes:
        low, high = wilson_interval(len(labels) // 2, len(labels))
        said += (
            f"the server has {len(labels)} samples for {num_classes} classes, fewer than {FEW} each: an accuracy of "
            f"50 % on them may be {100 * low:.0f} or {100 * high:.0f} %",
        )
    elif scarce:
        shown = ", ".join(scarce[:10]) + (", …" if len(scarce) > 10 else "")
        said += (
            f"the server has fewer than {FEW} samples of {len(scarce)} of {num_classes} classes ({shown}): what "
            "clients know of those hardly counts",
        )
    return said


def weight_statement(aggregates: list[Aggregate], clients: int) -> dict[str, float]:
    """The effective number of clients 1/Σp² (summed over architectures), and the share that screening refused."""
    said = {"screened_share": sum(len(a.dropped) for a in aggregates) / max(clients, 1)}
    weights = [a.coefficients for a in aggregates if a.coefficients is None or len(a.coefficients)]
    known = [p for p in weights if p is not None and bool(p.any())]  # an architecture without a client is no model
    if known and len(known) == len(weights):
        said["effective_clients"] = sum(1 / float((p / p.sum()).square().sum()) for p in known)
    return said
