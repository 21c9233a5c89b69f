"""Gaussian: send noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack, Knowledge, send
from smartfl.errors import UserError
from smartfl.types import Updates


@dataclass(frozen=True)
class Gaussian(Attack):
    """Each compromised client reports w^t + ε (``replace``) or w^t + Δ_i + ε (``add``), ε ~ N(mean, std²).

    Blanchard et al. 2017 use replace with std = 200; draws are independent between clients.
    """

    mode: Literal["replace", "add"] = "replace"
    mean: float = 0.0
    std: float = 200.0

    def __post_init__(self) -> None:
        if not self.std >= 0:
            raise UserError(f"std = {self.std} must be at least 0")

    def poison_updates(self, updates: Updates, malicious: Tensor, knowledge: Knowledge) -> Updates:
        if not malicious.any():
            return updates
        own = updates.deltas[malicious]
        # Drawn on the CPU, where the stream lives, so that a run is the same on every device.
        noise = torch.randn(own.shape, generator=knowledge.generator).to(own) * self.std + self.mean
        return send(updates, malicious, noise if self.mode == "replace" else own + noise)
