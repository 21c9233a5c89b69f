"""MobileNet v1 and v2 for small images."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from smartfl.models.norm import Norm, NormKind
from smartfl.models.shapes import image_shape

# (channels, stride) of each depthwise-separable block.
V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
# (expansion, channels, blocks, stride of the first) of each stage.
V2 = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """1×1 up – depthwise 3×3 – 1×1 down without ReLU, plus a shortcut at stride 1 (a 1×1 convolution where
    the channels change)."""

    def __init__(self, channels_in: int, channels_out: int, expansion: int, stride: int, norm: Norm) -> None:
        super().__init__()
        wide = expansion * channels_in
        down = norm.conv(wide, channels_out, 1, relu=False)
        self.branch = nn.Sequential(
            norm.conv(channels_in, wide, 1), norm.conv(wide, wide, 3, stride, depthwise=True), down
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            same = channels_in == channels_out
            self.shortcut = nn.Identity() if same else norm.conv(channels_in, channels_out, 1, relu=False)
            if norm.kind == "none":
                # Thirteen sums of two maps would make the variance 2^13 times what it was.
                nn.init.zeros_(down[0].weight)  # type: ignore[arg-type]

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.branch(maps)
        return out if self.shortcut is None else out + self.shortcut(maps)


def _v1(channels: int, norm: Norm) -> list[nn.Module]:
    layers: list[nn.Module] = [norm.conv(channels, 32, 3)]
    before = 32
    for after, stride in V1:
        layers += [norm.conv(before, before, 3, stride, depthwise=True), norm.conv(before, after, 1)]
        before = after
    return layers


def _v2(channels: int, norm: Norm) -> list[nn.Module]:
    layers: list[nn.Module] = [norm.conv(channels, 32, 3)]
    before = 32
    for expansion, after, blocks, first in V2:
        for stride in (first, *(1,) * (blocks - 1)):
            layers.append(InvertedResidual(before, after, expansion, stride, norm))
            before = after
    return [*layers, norm.conv(before, 1280, 1)]


def mobilenet(
    input_shape: tuple[int, ...],
    num_classes: int,
    version: Literal["v1", "v2"] = "v1",
    norm: NormKind = "batch",
    groups: int = 2,
) -> nn.Module:
    """MobileNet with strides for 32×32 images; (B, K, H, W) → logits (B, C).

    v1   Howard et al. 2017, which the paper cites: 13 depthwise-separable blocks, the first convolution at stride
         1; 3,217,226 parameters for CIFAR-10, 3,309,476 for CIFAR-100.
    v2   Sandler et al. 2018 in the form common for CIFAR (and FedDF's): first convolution and second stage at
         stride 1, ReLU for ReLU6, a convolution as shortcut where channels change at stride 1; 2,296,922 and
         2,412,212.

    Without normalisation v2's residual branches start at zero.  Batches of one sample need eval mode: BatchNorm
    in train mode sees a single value per channel once the map is 1×1.
    """
    channels, _, _ = image_shape("mobilenet", input_shape, smallest=4)
    maker = Norm(norm, groups)
    features, width = (_v1(channels, maker), 1024) if version == "v1" else (_v2(channels, maker), 1280)
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
