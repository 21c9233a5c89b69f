"""Uniform: the plain mean, the baseline that every result is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class Uniform(Aggregator):
    """w ← (1/n) Σ w_i, whatever the clients report of their sample counts."""

    widens: ClassVar[bool] = True

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        return weighted(updates, torch.full_like(updates.num_examples, 1 / len(updates)))
