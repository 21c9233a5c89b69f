"""BatchNorm in the server step: what its running statistics do while client models are mixed.

mode        while p is optimised                             the returned model has
mixed       eval mode at Σ p_i (mean_i, var_i), with         the same mix
            gradients through the statistics
detached    as mixed, no gradient through the statistics     the same mix
moments     as mixed, var = Σp(σ² + μ²) − (Σpμ)²             the same mix
train       statistics of the batch                          the mix, though the loss never saw it
reestimate  statistics of the batch                          statistics re-estimated on the proxy inputs

"mixed" optimises exactly the model that is returned.  "reestimate" goes with batch statistics for the same
reason: no client's running statistics are left in what it returns.  Layers without running statistics
(track_running_stats = False) use the batch in every mode, as they do everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from smartfl.flat import FlatSpec
from smartfl.products import arithmetic
from smartfl.types import Updates

BatchNormMode = Literal["mixed", "detached", "moments", "train", "reestimate"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LEAST_VARIANCE = 1e-12
_LARGEST_BATCH = 1024


def _tracking(model: nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorm layers with running statistics, by name."""
    return {k: m for k, m in model.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}


def has_batchnorm(model: nn.Module) -> bool:
    """Whether the model has running statistics, that is, whether a BatchNormMode makes a difference."""
    return bool(_tracking(model))


def fixed_statistics(model: nn.Module) -> set[str]:
    """The running statistics of layers that no BatchNormMode reaches, as InstanceNorm, by name.

    These layers call PyTorch's kernel, which refuses statistics that need a gradient.
    """
    reached = _tracking(model)
    names = (name for name, _ in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    return {name for name in names if name.rpartition(".")[0] not in reached}


def _copy(model: nn.Module, replaced: Mapping[int, Tensor] | None = None) -> nn.Module:
    """The model's structure in eval mode over the same tensors: what is changed in it, the model never sees.

    ``replaced`` names other tensors for some of them, by the id of the model's own.
    """
    shared = {id(t): t for t in chain(model.parameters(), model.buffers())}
    return deepcopy(model, {**shared, **(replaced or {})}).eval()


def _scale_and_shift(layer: _BatchNorm, detached: bool) -> tuple[Tensor, Tensor]:
    """(C,) s = γ / √(var + eps) and t = β − mean·s: the layer is x ↦ s·x + t."""
    mean, var = layer.running_mean, layer.running_var
    assert mean is not None
    assert var is not None
    if detached:
        mean, var = mean.detach(), var.detach()
    scale = torch.rsqrt(var + layer.eps)
    if layer.weight is None:
        return scale, -mean * scale
    scale = scale * layer.weight
    return scale, torch.addcmul(layer.bias, mean, scale, value=-1)


def _normalise(layer: _BatchNorm, detached: bool, inputs: Tensor) -> Tensor:
    """The layer in eval mode, differentiable in its statistics.

    PyTorch's kernel refuses statistics that need a gradient, so it is given mean 0 and variance 1 and does the
    big tensors; the statistics enter through s and t, which have one number per channel.
    """
    scale, shift = _scale_and_shift(layer, detached)
    zeros, ones = torch.zeros_like(scale, requires_grad=False), torch.ones_like(scale, requires_grad=False)
    return F.batch_norm(inputs, zeros, ones, scale, shift, False, 0.0, 0.0)


def _convolve(
    convolution: nn.Conv1d | nn.Conv2d | nn.Conv3d, layer: _BatchNorm, detached: bool, inputs: Tensor
) -> Tensor:
    """Convolution and BatchNorm as one convolution with weights s·W and bias t + s·b: two passes over the maps
    less forwards, two less backwards."""
    scale, shift = _scale_and_shift(layer, detached)
    if convolution.bias is not None:
        shift = torch.addcmul(shift, scale, convolution.bias)
    weight = convolution.weight * scale.view(-1, *(1,) * (convolution.weight.ndim - 1))
    output: Tensor = convolution._conv_forward(inputs, weight, shift)
    return output


def _by_batch(layer: _BatchNorm, inputs: Tensor) -> Tensor:
    """The layer with the statistics of ``inputs``; a single value per channel gives β instead of an error."""
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(inputs, layer.weight, layer.bias, None, None, True, 0.0, layer.eps, cudnn)


def _identity(inputs: Tensor) -> Tensor:
    return inputs


def _foldable(model: nn.Module) -> dict[_BatchNorm, nn.Conv1d | nn.Conv2d | nn.Conv3d]:
    """BatchNorm layers whose only input is certainly the convolution before them in an nn.Sequential."""
    uses = Counter(m for _, m in model.named_modules(remove_duplicate=False))
    # A subclass with its own forward may leave its children out or run them in another order.
    plain = (m for m in model.modules() if isinstance(m, nn.Sequential) and type(m).forward is nn.Sequential.forward)
    return {
        layer: before  # type: ignore[misc]
        for sequence in plain
        for before, layer in pairwise(sequence)
        # The exact type: a parametrised convolution computes its weight anew each time it is read.
        if type(before) in _CONVOLUTIONS
        and isinstance(layer, _BatchNorm)
        and layer.running_mean is not None
        and uses[before] == uses[layer] == 1
        and not (before._forward_hooks or before._forward_pre_hooks)
    }


def server_model(model: nn.Module, mode: BatchNormMode, replaced: Mapping[int, Tensor] | None = None) -> nn.Module:
    """The model as the server evaluates it at a mix: ``spec.functional_call(server_model(…), vector, inputs)``.

    A copy in eval mode (dropout off) with the same names, over the same tensors or those that ``replaced`` names by the
    ids of the model's own; ``model`` is left as it is.
    With "mixed", "moments" and "detached" BatchNorm is (x − mean)·γ/√(var + eps) + β at the vector's statistics,
    with gradients into them except for "detached"; for "moments" the vector must come out of ``from_moments``.
    With "train" and "reestimate" it uses the statistics of the batch and leaves the vector's alone.

    Of five formulations that are differentiable in the statistics (ResNet-8, batch 32, forward and backward, one
    thread) folding into the convolution had the lowest median; it is used where an nn.Sequential shows that the
    two belong together.  Elsewhere ``_normalise``, which could not be told from a hand-written backward pass.
    """
    copy = _copy(model, replaced)
    folded = {} if mode in ("train", "reestimate") else _foldable(copy)
    for layer in _tracking(copy).values():
        # An attribute of the instance shadows the method: names and classes stay as the user's code expects.
        if mode in ("train", "reestimate"):
            layer.forward = partial(_by_batch, layer)  # type: ignore[method-assign]
        elif layer in folded:
            convolution = folded[layer]
            convolution.forward = partial(_convolve, convolution, layer, mode == "detached")  # type: ignore[method-assign]
            layer.forward = _identity  # type: ignore[method-assign,assignment]
        else:
            layer.forward = partial(_normalise, layer, mode == "detached")  # type: ignore[method-assign]
    return copy


def _add_squared_means(values: Tensor, spec: FlatSpec, sign: int, least: float | None) -> Tensor:
    """Running variances plus sign·mean², everything else unchanged; (…, d) → (…, d)."""
    place = {e.name: i for i, e in enumerate(spec.buffers, start=1)}
    pairs = [
        (place[mean], i)
        for name, i in place.items()
        if name.endswith("running_var") and (mean := name.removesuffix("var") + "mean") in place
    ]
    if not pairs:
        return values
    # One split and one concatenation, so that going backwards costs one of each, however many layers there are.
    parts = list(values.split([spec.num_parameters, *(e.stop - e.start for e in spec.buffers)], dim=-1))
    for mean_at, var_at in pairs:
        parts[var_at] = parts[var_at] + sign * parts[mean_at].square()
        if least is not None:
            parts[var_at] = parts[var_at].clamp(min=least)
    return torch.cat(parts, dim=-1)


def to_moments(matrix: Tensor, spec: FlatSpec) -> Tensor:
    """Client models (n, d) with second moments σ² + μ² in the place of running variances: these mix linearly.

    In float32 where the models are in half precision: from μ² of 8 bits no variance comes back.
    """
    return _add_squared_means(matrix.to(arithmetic(matrix.dtype)), spec, 1, None)


def from_moments(vector: Tensor, spec: FlatSpec) -> Tensor:
    """The model (d,) of a mix of ``to_moments``: var = Σp(σ² + μ²) − (Σpμ)², differentiable, at least 1e-12."""
    return _add_squared_means(vector, spec, -1, _LEAST_VARIANCE)


def moment_matched(updates: Updates, p: Tensor) -> Tensor:
    """(d,) Σ p_i w_i whose running variances are those of the mixture: the law of total variance.

    The linear mix Σ p σ² leaves out the spread of the clients' means and is too small where their data differ.
    """
    moments = to_moments(updates.matrix, updates.spec)
    return from_moments(p.to(moments) @ moments, updates.spec)


@dataclass
class _Statistics:
    """How many values per channel a layer saw, their mean (C,) and Σ(x − mean)² (C,), in float64."""

    layer: _BatchNorm
    count: int = 0
    mean: Tensor | float = 0.0
    spread: Tensor | float = 0.0

    def observe(self, inputs: Tensor) -> Tensor:
        """Take in ``inputs`` (b, C, …) and return what the layer makes of them with their own statistics."""
        count = inputs.numel() // inputs.shape[1]
        if count < 2:
            return _by_batch(self.layer, inputs)
        mean, var = inputs.new_zeros(inputs.shape[1]), inputs.new_ones(inputs.shape[1])
        # With momentum 1 the kernel leaves the batch's mean and unbiased variance in its running statistics.
        output = F.batch_norm(inputs, mean, var, self.layer.weight, self.layer.bias, True, 1.0, self.layer.eps)
        total = self.count + count
        delta = mean.double() - self.mean
        self.spread = self.spread + (count - 1) * var.double() + delta.square() * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.count = total
        return output


def reestimate(model: nn.Module, spec: FlatSpec, vector: Tensor, inputs: Tensor) -> Tensor:
    """(d,) ``vector`` with the running statistics that ``inputs`` (N, …) have in this model.

    One pass in order: each layer gets the mean and the unbiased variance of all values it sees, and hands on its
    input normalised by them.  Up to 1024 samples are one batch; more are cut into equal batches, normalised
    one by one, with statistics pooled over all.  A layer that sees one value per channel keeps what it had.
    """
    if not has_batchnorm(model) or len(inputs) == 0:
        return vector
    return reestimate_and_predict(model, spec, vector, inputs)[0]


@torch.no_grad()
def reestimate_and_predict(model: nn.Module, spec: FlatSpec, vector: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """``reestimate`` and the logits (N, C) of its pass, in which every layer used the statistics of its batch.

    Values of 1e20 have logits by their batch, which divides by an infinite variance, and yet no model that could be
    shipped: their logits are NaN.
    """
    copy = _copy(model)
    layers = {name: _Statistics(layer) for name, layer in _tracking(copy).items()}
    for statistics in layers.values():
        statistics.layer.forward = statistics.observe  # type: ignore[method-assign,assignment]
    batches = inputs.tensor_split(-(-len(inputs) // _LARGEST_BATCH))
    logits = torch.cat([spec.functional_call(copy, vector, batch) for batch in batches])
    out = vector.clone()
    parts = spec.unflatten(out)
    for name, seen in layers.items():
        if seen.count > 1 and isinstance(seen.mean, Tensor) and isinstance(seen.spread, Tensor):
            prefix = f"{name}." if name else ""
            parts[f"{prefix}running_mean"].copy_(seen.mean)
            parts[f"{prefix}running_var"].copy_((seen.spread / (seen.count - 1)).clamp(min=_LEAST_VARIANCE))
    return out, logits if torch.isfinite(out).all() else torch.full_like(logits, torch.nan)
