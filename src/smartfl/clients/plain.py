"""Plain local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartfl.clients.base import ClientAlgorithm


@dataclass
class Plain(ClientAlgorithm):
    """Local training by the stated optimiser and nothing else (FedAvg's client)."""

    stackable: ClassVar[bool] = True
