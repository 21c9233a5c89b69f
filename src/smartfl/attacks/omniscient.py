"""Omniscient: send the opposite of what honest training found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, observed, send
from smartfl.types import Updates


def turned_around(updates: Updates, malicious: Tensor) -> Tensor | None:
    """(P,) mean_corrupt − 2 (N_all / N_corrupt) mean_all: the row that turns the weighted mean of all clients around.

    Means are weighted by sample count and run over the rows that screening keeps.  None if the corrupt clients carry no
    weight: no row of theirs moves a weighted mean.
    """
    deltas = updates.deltas
    finite = torch.isfinite(deltas.sum(dim=1, dtype=torch.float64))
    corrupt = malicious.to(deltas.device)
    mass = updates.weights * (finite | corrupt)
    if mass[corrupt].sum() <= 0:
        return None
    share = (mass / mass.sum()).to(deltas.dtype)
    values = torch.where(finite[:, None], deltas, 0)
    corrupt_share = share[corrupt].sum()
    return (share[corrupt] @ values[corrupt] - 2 * (share @ values)) / corrupt_share


@dataclass(frozen=True)
class Omniscient(Attack):
    """Compromised clients report w^t − λΔ, with Δ one of

    own    their own honest update (the SmartFL paper: "negates the original benign gradients")
    mean   the mean update of the benign clients, identical copies (Blanchard et al. 2017)
    rfa    mean_corrupt − 2 (N_all / N_corrupt) mean_all, which turns the weighted average around exactly
           (Pillutla et al. 2019); λ is not used

    ``mean`` without a benign client takes the attackers' own mean; ``rfa`` without weight sends ``own``.
    """

    mode: Literal["own", "mean", "rfa"] = "own"
    scale: float = 1.0

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        if self.mode == "mean":
            return send(updates, malicious, -self.scale * known.mean(dim=0))
        turned = turned_around(updates, malicious) if self.mode == "rfa" else None
        return send(updates, malicious, -self.scale * updates.deltas[malicious] if turned is None else turned)
