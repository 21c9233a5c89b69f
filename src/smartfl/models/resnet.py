"""ResNet-8 for small images."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from smartfl.errors import UserError
from smartfl.models.norm import Norm, NormKind
from smartfl.models.shapes import image_shape


class BasicBlock(nn.Module):
    """ReLU(conv3×3 – norm – ReLU – conv3×3 – norm + shortcut); a 1×1 projection where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            norm.conv(channels_in, channels_out, 3, stride), norm.conv(channels_out, channels_out, 3, relu=False)
        )
        same = channels_in == channels_out and stride == 1
        self.shortcut = nn.Identity() if same else norm.conv(channels_in, channels_out, 1, stride, relu=False)

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.branch(maps) + self.shortcut(maps), inplace=True)


def resnet8(
    input_shape: tuple[int, ...],
    num_classes: int,
    norm: NormKind = "batch",
    groups: int = 2,
    init: Literal["feddf", "pytorch"] = "feddf",
    width: int = 16,
    stages: int = 3,
) -> nn.Module:
    """The CIFAR ResNet of depth 6n + 2 with n = 1 (He et al. 2016); images (B, K, H, W) → logits (B, C).

    conv3×3 to 16 channels, one block each at 16, 32 (stride 2) and 64 (stride 2), mean over the map, linear.
    With batch normalisation 78,042 parameters for CIFAR-10, 83,892 for CIFAR-100, 77,754 for Fashion-MNIST, and
    9 layers with 672 running statistics.  ``width = 64, stages = 4`` is what FedAUX (Sattler et al. 2021) calls
    ResNet-8: blocks at 64, 128, 256 and 512 channels, 4,903,242 parameters.

    ``init = "feddf"`` draws convolutions from N(0, 2/(k²·C_out)), as Lin et al. 2020 do; the normalisation starts
    at γ = 1, β = 0 and the linear layer as PyTorch has it.  "pytorch" leaves every layer as PyTorch (or, without
    normalisation, ``Norm``) has it.
    """
    channels, _, _ = image_shape("resnet8", input_shape, smallest=4)
    maker = Norm(norm, groups)
    if width < 1 or stages < 1:
        raise UserError(f"resnet8: width = {width} and stages = {stages} must be at least 1")
    widths = [width * 2**k for k in range(stages)]
    model = nn.Sequential(
        maker.conv(channels, width, 3),
        BasicBlock(width, width, 1, maker),
        *(BasicBlock(narrow, wide, 2, maker) for narrow, wide in pairwise(widths)),
        # Not a fixed 8×8 pool: 28×28 images end in 7×7 maps.
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], num_classes),
    )
    if init == "feddf":
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels)))
    return model
