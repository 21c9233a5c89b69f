"""Inner product manipulation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, observed, send
from smartfl.types import Updates


@dataclass(frozen=True)
class IPM(Attack):
    """Every compromised client reports w^t − ε · mean(benign Δ).

    Xie, Koyejo & Gupta 2019, "Fall of empires".  A small ε (0.1) stays close to the benign rows and beats Krum-like
    rules; a large one (100) makes the inner product of mean and aggregate negative under averages.  Without a benign
    client the mean runs over the attackers' own updates.
    """

    epsilon: float = 0.1

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        known = observed(updates, malicious)
        if not malicious.any() or not len(known):
            return updates
        return send(updates, malicious, -self.epsilon * known.mean(dim=0))
