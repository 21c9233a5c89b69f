"""What the architectures ask of a sample's shape."""

from __future__ import annotations

from math import prod

from smartfl.errors import UserError


def num_features(model: str, input_shape: tuple[int, ...]) -> int:
    """How many numbers one sample holds, for models that flatten it."""
    if not input_shape or min(input_shape) < 1:
        raise UserError(f"model.name = '{model}' needs samples with at least one number each, got shape {input_shape}")
    return prod(input_shape)


def image_shape(model: str, input_shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """(channels, height, width) of one image whose sides are at least ``smallest``."""
    if len(input_shape) != 3 or input_shape[0] < 1 or min(input_shape[1:]) < smallest:
        raise UserError(
            f"model.name = '{model}' needs images of shape (channels, height, width) with sides of at least "
            f"{smallest}, got shape {tuple(input_shape)}"
        )
    channels, height, width = input_shape
    return channels, height, width
