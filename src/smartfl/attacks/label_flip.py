"""Label flip: train on the next class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.attacks.base import Attack
from smartfl.data.dataset import Inputs


@dataclass(frozen=True)
class LabelFlip(Attack):
    """y → (y + 1) mod C on every training sample of a compromised client, in every round (the paper's form)."""

    def poison_data(
        self, inputs: Inputs, labels: Tensor, num_classes: int, generator: torch.Generator
    ) -> tuple[Inputs, Tensor]:
        return inputs, (labels + 1) % num_classes
