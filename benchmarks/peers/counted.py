"""smartfl's FedAvg, which also tells how many steps the clients made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smartfl.aggregators.fedavg import FedAvg
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class CountedFedAvg(FedAvg):
    """FedAvg with ``info["steps"]``: Σ of the clients' own step counts, to compare with the peers'."""

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        result = super().aggregate(updates, server)
        return replace(result, info={**result.info, "steps": float(updates.num_steps.sum())})
