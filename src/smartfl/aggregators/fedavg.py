"""FedAvg: the average weighted by sample counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class FedAvg(Aggregator):
    """w ← Σ α_i w_i with α_i = N_i / ΣN over the sampled clients.

    McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data".
    The counts are the clients' own word: an attacker that reports more counts for more.
    """

    widens: ClassVar[bool] = True

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        return weighted(updates, updates.weights)
