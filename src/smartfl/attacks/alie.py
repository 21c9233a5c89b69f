"""ALIE: a little is enough."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, observed, send
from smartfl.types import Updates


def z_max(m: int, f: int) -> float:
    """z = Φ⁻¹((m − f − s)/(m − f)) with s = ⌊m/2 + 1⌋ − f supporters, for f attackers among m clients.

    The argument is kept in [0.5, 0.999]: a malicious majority would give z = ∞, and below a half the attack would
    push in the helpful direction.
    """
    s = m // 2 + 1 - f
    share = (m - f - s) / (m - f) if f < m else 1.0
    return NormalDist().inv_cdf(min(max(share, 0.5), 0.999))


def spread(rows: Tensor, unbiased: bool = True) -> Tensor:
    """(P,) standard deviation per coordinate of ``rows`` (k, P); zero for a single row."""
    if len(rows) < 2:
        return torch.zeros_like(rows[0])
    return rows.std(dim=0, unbiased=unbiased)


@dataclass(frozen=True)
class ALIE(Attack):
    """Every compromised client reports w^t + mean ∓ z · std of the benign updates, per coordinate.

    Baruch, Baruch & Goldberg 2019: a shift small enough to leave some benign clients further out than the attackers.
    ``z`` is derived from the cohort (``z_max``) unless given.  ``direction`` "minus" as in the paper's and epfml's
    code, "plus" as in NDSS'21, blades and FLPoison; ``unbiased`` divides by k − 1.  Without a benign client the
    attackers' own updates give mean and std.
    """

    z: float | None = None
    direction: Literal["minus", "plus"] = "minus"
    unbiased: bool = True

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        z = z_max(len(updates), int(malicious.sum())) if self.z is None else self.z
        shift = z * spread(known, self.unbiased)
        return send(updates, malicious, known.mean(dim=0) + (shift if self.direction == "plus" else -shift))
