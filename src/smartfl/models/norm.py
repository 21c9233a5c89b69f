"""The normalisation layer of an architecture: batch, group or none."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

from torch import nn

from smartfl.errors import UserError

NormKind = Literal["batch", "group", "none"]


@dataclass(frozen=True)
class Norm:
    """A maker of normalised convolutions.

    batch   nn.BatchNorm2d: running statistics are float buffers that travel with the clients' weights
    group   nn.GroupNorm with ``groups`` groups of channels: no buffers (Wu & He 2018)
    none    no layer.  Its shift is needed all the same, so the convolution in front gets a bias, zero at first;
            and as nothing rescales activations any more, the weights keep their variance at initialisation:
            N(0, 2/fan_in) in front of a ReLU (He et al. 2015), N(0, 1/fan_in) in front of none.
    """

    kind: NormKind = "batch"
    groups: int = 2

    def layer(self, channels: int) -> nn.Module:
        """The layer for maps with ``channels`` channels."""
        if self.kind == "batch":
            return nn.BatchNorm2d(channels)
        if self.kind == "group":
            if self.groups < 1 or channels % self.groups:
                raise UserError(f"groups = {self.groups} must divide every number of channels of the model: {channels}")
            return nn.GroupNorm(self.groups, channels)
        return nn.Identity()

    def conv(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        stride: int = 1,
        depthwise: bool = False,
        relu: bool = True,
    ) -> nn.Sequential:
        """Convolution (size kept at stride 1), normalisation and, with ``relu``, a ReLU."""
        convolution = nn.Conv2d(
            channels_in,
            channels_out,
            kernel,
            stride,
            padding=kernel // 2,
            groups=channels_in if depthwise else 1,
            bias=self.kind == "none",
        )
        layers: list[nn.Module] = [convolution]
        if convolution.bias is None:
            layers.append(self.layer(channels_out))
        else:
            fan_in = convolution.weight[0].numel()
            nn.init.normal_(convolution.weight, std=sqrt((2 if relu else 1) / fan_in))
            nn.init.zeros_(convolution.bias)
        if relu:
            # In place: neither a convolution nor a normalisation needs its own output to go backwards.
            layers.append(nn.ReLU(inplace=True))
        return nn.Sequential(*layers)
