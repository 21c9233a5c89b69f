"""ShuffleNet-V2 for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smartfl.errors import UserError
from smartfl.models.norm import Norm, NormKind
from smartfl.models.shapes import image_shape

STAGES = {0.5: (48, 96, 192), 1.0: (116, 232, 464)}
BLOCKS = (3, 7, 3)


def shuffle(left: Tensor, right: Tensor) -> Tensor:
    """(B, 2c, H, W) the channels of two maps (B, c, H, W), alternating."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


def _branch(channels_in: int, channels_out: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        norm.conv(channels_in, channels_out, 1),
        norm.conv(channels_out, channels_out, 3, stride, depthwise=True, relu=False),
        norm.conv(channels_out, channels_out, 1),
    )


class Basic(nn.Module):
    """Half of the channels pass unchanged, the other half through 1×1 – depthwise 3×3 – 1×1."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.branch = _branch(channels // 2, channels // 2, 1, norm)

    def forward(self, maps: Tensor) -> Tensor:
        kept, worked = maps.chunk(2, dim=1)
        return shuffle(kept, self.branch(worked))


class Down(nn.Module):
    """Both halves of the new channels are convolutions of all old ones at stride 2."""

    def __init__(self, channels_in: int, channels_out: int, norm: Norm) -> None:
        super().__init__()
        half = channels_out // 2
        self.left = nn.Sequential(
            norm.conv(channels_in, channels_in, 3, 2, depthwise=True, relu=False), norm.conv(channels_in, half, 1)
        )
        self.right = _branch(channels_in, half, 2, norm)

    def forward(self, maps: Tensor) -> Tensor:
        return shuffle(self.left(maps), self.right(maps))


def shufflenet(
    input_shape: tuple[int, ...], num_classes: int, width: float = 1.0, norm: NormKind = "batch", groups: int = 2
) -> nn.Module:
    """ShuffleNet-V2 (Ma et al. 2018) with strides for 32×32 images; (B, K, H, W) → logits (B, C).

    conv3×3 to 24 channels at stride 1, no max-pool, three stages of a down block and 3, 7, 3 basic blocks,
    conv1×1 to 1024, mean over the map, linear.  ``width`` 1.0: 1,263,854 parameters for CIFAR-10, 1,356,104 for
    CIFAR-100; 0.5: 352,042 for CIFAR-10.  Batches of one sample need eval mode.
    """
    channels, _, _ = image_shape("shufflenet", input_shape, smallest=4)
    if width not in STAGES:
        raise UserError(f"width = {width} must be one of {', '.join(map(str, STAGES))}")
    maker = Norm(norm, groups)
    layers: list[nn.Module] = [maker.conv(channels, 24, 3)]
    before = 24
    for after, blocks in zip(STAGES[width], BLOCKS, strict=True):
        layers += [Down(before, after, maker), *(Basic(after, maker) for _ in range(blocks))]
        before = after
    head = (maker.conv(before, 1024, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, num_classes))
    return nn.Sequential(*layers, *head)
