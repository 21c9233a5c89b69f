"""Crash: send nothing valid, as a perfectly detected attacker would be treated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge
from smartfl.types import Updates


@dataclass(frozen=True)
class Crash(Attack):
    """Each compromised client reports NaN, so that screening refuses it.

    The weakest attack there is, and a yardstick for defences: no detector of attackers can do better than to drop all
    of them and nobody else, which is what every rule does here.
    """

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any():
            return updates
        rows = updates.matrix.clone()  # not ``send``, which takes care that an attack stays finite
        rows[malicious] = torch.nan
        return updates.with_matrix(rows)
