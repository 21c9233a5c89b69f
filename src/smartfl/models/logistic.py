"""Multinomial logistic regression."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from smartfl.models.shapes import num_features


class Logistic(nn.Module):
    """Logits W x + b of a flattened sample; inputs (B, …) → logits (B, C).

    The logits are linear in (W, b), so those of a mixed model are the mix of the clients' logits,
    f(Σ p_i w_i) = Σ p_i f(w_i): a server may compute each client's once and never call the model again.
    """

    linear_in_parameters: ClassVar[bool] = True

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.linear(inputs.flatten(1))
        return logits


def logistic(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One linear layer with bias: C·V + C parameters for V features and C classes."""
    return Logistic(num_features("logistic", input_shape), num_classes)
