"""The gradient of a small ConvNet by matrix products over tiles, where convolution kernels are slow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smartfl.models.convnet import ConvNet

_FEW = 16  # channels; libraries' convolutions reach the speed of matrix products from about here on


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """The gradient where the ReLU let something through."""
    passed: Tensor = torch.ops.aten.threshold_backward(gradient, output, 0)
    return passed


class _ConvPool:
    """ReLU(max-pool 2 (conv k×k)) of maps (C, H, W, B), samples innermost, for odd k.

    The four outputs that one pool looks at see a tile of t×t pixels, t = k + 1, and tiles lie 2 apart.  All four are
    one product of the tiles (C t², h w B) with a matrix (4·out, C t²) that holds the kernel in four places, so the
    pool is a maximum of four blocks of memory.  It costs (t/k)² of the arithmetic and saves the rest.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        self.weight, self.bias, self.padding = layer.weight, layer.bias, int(layer.padding[0])
        self.out, self.channels, self.kernel = layer.weight.shape[0], layer.weight.shape[1], layer.weight.shape[2]
        self.tile = self.kernel + 1
        self.spread = torch.zeros(2, 2, self.out, self.channels, self.tile, self.tile)
        k = self.kernel
        self._places = [(a, b, slice(a, a + k), slice(b, b + k)) for a in (0, 1) for b in (0, 1)]

    def forward(self, maps: Tensor) -> Tensor:
        """(out, h, w, B) for ``maps`` (C, H, W, B)."""
        assert self.bias is not None
        for a, b, rows, columns in self._places:
            self.spread[a, b, :, :, rows, columns] = self.weight
        if self.padding:
            maps = F.pad(maps, (0, 0, *[self.padding] * 4))
        height, width = ((side - self.kernel + 1) // 2 for side in maps.shape[1:3])
        self._pooled = self.out, height, width, maps.shape[3]
        channel, row, column, _ = maps.stride()
        tiles = maps.as_strided(
            (self.channels, self.tile, self.tile, height, width, maps.shape[3]),
            (channel, row, column, 2 * row, 2 * column, 1),
        )
        self._tiles = tiles.reshape(self.channels * self.tile**2, -1)
        y0, y1, y2, y3 = torch.mm(self.spread.view(4 * self.out, -1), self._tiles).view(4, self.out, -1)
        # Who wins, as 0 and 1; of equals the first, as in torch.  A product selects ten times as fast as where().
        self._first = y0.new_empty(3, *y0.shape)
        torch.ge(y0, y1, out=self._first[0])
        torch.ge(y2, y3, out=self._first[1])
        torch.maximum(y0, y1, out=y0)
        torch.maximum(y2, y3, out=y2)
        torch.ge(y0, y2, out=self._first[2])
        self._output = torch.maximum(y0, y2, out=y0).add_(self.bias.unsqueeze(1)).relu_()
        return self._output.view(self._pooled)

    def backward(self, gradient: Tensor) -> Tensor:
        """Write the layer's gradients; returns that of every output that a pool saw, (4·out, h w B)."""
        assert self.bias is not None
        assert self.weight.grad is not None
        assert self.bias.grad is not None
        gradient = _relu_backward(gradient.view(self.out, -1), self._output)
        torch.sum(gradient, dim=1, out=self.bias.grad)
        four = gradient.new_empty(4, *gradient.shape)
        g0, g1, g2, g3 = four
        torch.mul(gradient, self._first[2], out=g1)
        torch.sub(gradient, g1, out=g3)
        torch.mul(g1, self._first[0], out=g0)
        g1.sub_(g0)
        torch.mul(g3, self._first[1], out=g2)
        g3.sub_(g2)
        flat = four.view(4 * self.out, -1)
        spread = torch.mm(flat, self._tiles.t()).view_as(self.spread)
        parts = [spread[a, b, :, :, rows, columns] for a, b, rows, columns in self._places]
        self.weight.grad.copy_((parts[0] + parts[1]).add_(parts[2]).add_(parts[3]))
        return flat

    def to_maps(self, four: Tensor, height: int, width: int) -> Tensor:
        """The gradient (C, height, width, B) of the maps from that of the outputs: every tile adds what it saw."""
        half, c, (_, h, w, samples) = self.tile // 2, self.channels, self._pooled
        tiles = torch.mm(self.spread.view(4 * self.out, -1).t(), four).view(c, half, 2, half, 2, h, w, samples)
        rows = tiles.new_zeros(c, h + half - 1, 2, half, 2, w, samples)  # first over rows, then over columns
        for i in range(half):
            rows[:, i : i + h].add_(tiles[:, i].permute(0, 4, 1, 2, 3, 5, 6))
        maps = tiles.new_zeros(c, h + half - 1, 2, w + half - 1, 2, samples)
        for i in range(half):
            maps[:, :, :, i : i + w].add_(rows[:, :, :, i].permute(0, 1, 2, 4, 3, 5))
        maps = maps.view(c, 2 * (h + half - 1), 2 * (w + half - 1), samples)
        pad = self.padding
        # Pixels that no tile reaches (an odd last row) have no gradient.
        return F.pad(maps, (0, 0, 0, max(0, width + pad - maps.shape[2]), 0, max(0, height + pad - maps.shape[1])))[
            :, pad : pad + height, pad : pad + width
        ]


class TiledConvNet:
    """Gradients of the mean cross entropy of a ``ConvNet``, written into its parameters' ``grad``, without autograd."""

    def __init__(self, model: ConvNet) -> None:
        self.first, self.second = _ConvPool(model.conv1), _ConvPool(model.conv2)
        self.hidden, self.head = model.fc1, model.fc2

    @classmethod
    def of(cls, model: nn.Module, device: str) -> TiledConvNet | None:
        """One for ``model`` where it is faster than autograd: few channels, on a CPU."""
        if type(model) is not ConvNet or device != "cpu" or model.conv1.out_channels >= _FEW:
            return None
        return cls(model) if all(p.requires_grad for p in model.parameters()) else None

    @torch.no_grad()
    def backward(self, images: Tensor, labels: Tensor) -> None:
        """The gradients for ``images`` (B, C, H, W) and ``labels`` (B,)."""
        pooled = self.first.forward(images.permute(1, 2, 3, 0).contiguous())
        features = self.second.forward(pooled).view(-1, len(labels))
        hidden = torch.addmm(self.hidden.bias.unsqueeze(1), self.hidden.weight, features).relu_()
        logits = torch.addmm(self.head.bias.unsqueeze(1), self.head.weight, hidden)
        delta = torch.softmax(logits, dim=0)
        delta[labels, torch.arange(len(labels))] -= 1
        delta /= len(labels)
        delta = _relu_backward(_linear_backward(self.head, delta, hidden), hidden)
        delta = _linear_backward(self.hidden, delta, features)
        delta = self.second.to_maps(self.second.backward(delta), *pooled.shape[1:3])
        self.first.backward(delta.reshape(self.first.out, -1))


def _linear_backward(layer: nn.Linear, delta: Tensor, below: Tensor) -> Tensor:
    """Write the gradients for ``delta`` (out, B) and the layer's input ``below`` (in, B); returns the input's."""
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    torch.mm(delta, below.t(), out=layer.weight.grad)
    torch.sum(delta, dim=1, out=layer.bias.grad)
    return torch.mm(layer.weight.t(), delta)
