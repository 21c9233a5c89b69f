"""A multilayer perceptron."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from smartfl.errors import UserError
from smartfl.models.shapes import num_features


def mlp(input_shape: tuple[int, ...], num_classes: int, hidden: tuple[int, ...] = (64,)) -> nn.Module:
    """Linear layers of widths V, hidden…, C with ReLU between them; inputs (B, …) → logits (B, C)."""
    if any(width < 1 for width in hidden):
        raise UserError(f"hidden = {list(hidden)} must list layer widths of at least 1")
    widths = (num_features("mlp", input_shape), *hidden)
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
