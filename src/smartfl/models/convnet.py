"""Two convolutions and two linear layers, in two sizes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smartfl.models.shapes import image_shape


class ConvNet(nn.Module):
    """conv5×5 – max-pool 2 – ReLU, twice, then linear – ReLU – linear; images (B, K, H, W) → logits (B, C)."""

    def __init__(
        self, image: tuple[int, int, int], num_classes: int, channels: tuple[int, int], hidden: int, padding: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image[0], channels[0], 5, padding=padding)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=padding)
        shrink = 4 - 2 * padding
        height, width = (((side - shrink) // 2 - shrink) // 2 for side in image[1:])
        self.fc1 = nn.Linear(channels[1] * height * width, hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        # ReLU and max commute; after the pool ReLU has a quarter of the work.
        maps = F.relu(F.max_pool2d(self.conv1(images), 2))
        maps = F.relu(F.max_pool2d(self.conv2(maps), 2))
        logits: Tensor = self.fc2(F.relu(self.fc1(torch.flatten(maps, 1))))
        return logits


def convnet(
    input_shape: tuple[int, ...], num_classes: int, variant: Literal["small", "mcmahan"] = "small"
) -> nn.Module:
    """The paper's 2-layer ConvNet.

    small     10 and 20 channels, 50 hidden units: 21,840 parameters for 1×28×28 and 10 classes.  The
              convolutions are unpadded, except on images with a side below 16 (8×8 digits), which two of them
              would use up: there they keep the size (padding 2).
    mcmahan   32 and 64 channels, padding 2, 512 hidden units: 1,663,370 parameters (McMahan et al. 2017).
    """
    image = image_shape("convnet", input_shape, smallest=4)
    if variant == "mcmahan":
        return ConvNet(image, num_classes, (32, 64), hidden=512, padding=2)
    return ConvNet(image, num_classes, (10, 20), hidden=50, padding=0 if min(image[1:]) >= 16 else 2)
