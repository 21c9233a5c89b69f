"""Label flip: train on the wrong class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smartfl.attacks.base import Attack
from smartfl.data.dataset import Inputs


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Every training sample of a compromised client gets a wrong label, in every round:

    next      y → (y + 1) mod C (the SmartFL paper's form); no label is left unchanged
    reverse   y → C − 1 − y (Fang et al. 2020, FLTrust); an odd C leaves the middle class as it is
    """

    variant: Literal["next", "reverse"] = "next"

    def poison_data(
        self, inputs: Inputs, labels: Tensor, num_classes: int, generator: torch.Generator
    ) -> tuple[Inputs, Tensor]:
        if self.variant == "reverse":
            return inputs, num_classes - 1 - labels
        return inputs, (labels + 1) % num_classes
