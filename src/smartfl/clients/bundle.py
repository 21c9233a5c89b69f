"""A bundle: clients whose models are trained by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from smartfl.data.dataset import Inputs


@dataclass(frozen=True, eq=False)
class Member:
    """One client of a bundle.

    index       (n,) its samples among the federation's
    labels      (n,) their labels, as the client uses them
    generator   its random stream of this round
    inputs      its own n samples, where an attack has changed them
    """

    index: Tensor
    labels: Tensor
    generator: torch.Generator
    inputs: Inputs | None = None


class BundleTrainer(Protocol):
    """Trains a bundle as ``LocalTrainer`` would train its members one after another, up to rounding."""

    def train(self, start: Tensor, inputs: Inputs, members: Sequence[Member], rows: Sequence[Tensor]) -> list[int]:
        """Train every member from ``start`` (P,) into its row (P,); returns their numbers of steps."""
        ...
