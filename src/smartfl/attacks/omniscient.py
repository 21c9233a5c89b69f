"""Omniscient: send the opposite of what honest training found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, send
from smartfl.types import Updates


@dataclass(frozen=True)
class Omniscient(Attack):
    """Compromised clients report w^t − λΔ, with Δ one of

    own    their own honest update (the SmartFL paper: "negates the original benign gradients")
    mean   the mean update of the benign clients, identical copies (Blanchard et al. 2017)
    rfa    mean_corrupt − 2 (N_all / N_corrupt) mean_all, which turns the weighted average around exactly
           (Pillutla et al. 2019); λ is not used
    """

    mode: Literal["own", "mean", "rfa"] = "own"
    scale: float = 1.0

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any():
            return updates
        deltas = updates.deltas
        if self.mode == "own" or (self.mode == "mean" and malicious.all()):
            return send(updates, malicious, -self.scale * deltas[malicious])
        if self.mode == "mean":
            return send(updates, malicious, -self.scale * deltas[~malicious].mean(dim=0))
        counts = updates.num_examples
        mean_all = (updates.weights.to(deltas.dtype) @ deltas).to(torch.float64)
        share = counts[malicious] / counts[malicious].sum().clamp_min(1)
        mean_corrupt = share @ deltas[malicious].to(torch.float64)
        ratio = float(counts.sum() / counts[malicious].sum().clamp_min(1))
        return send(updates, malicious, mean_corrupt - 2 * ratio * mean_all)
