"""Sign flip: send the own update backwards."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, send
from smartfl.types import Updates


@dataclass(frozen=True)
class SignFlip(Attack):
    """Each compromised client reports w^t − λΔ_i, with Δ_i its own honest update; needs no knowledge of others.

    The same as ``omniscient`` in mode ``own``.  Some libraries flip each *gradient* during local training instead;
    with Adam the two differ, since its second moments do not see the sign.
    """

    scale: float = 1.0

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any():
            return updates
        return send(updates, malicious, -self.scale * updates.deltas[malicious])
