"""The convex hull of the client models as a search space: logits and gradients at w(p) = Σ p_i w_i."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from smartfl.aggregators.batchnorm import (
    BatchNormMode,
    from_moments,
    has_batchnorm,
    reestimate,
    server_model,
    to_moments,
)
from smartfl.aggregators.calibration import logit_scale
from smartfl.aggregators.proxy import client_logits
from smartfl.types import Updates

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps the logits (b, C) of a mini-batch and its index (b,) to a scalar."""


class Hull:
    """The model w(p) on the server's inputs (N, …), for any p on the simplex.

    A step costs one mix pᵀW, one forward and backward pass, and one product W·g: never n models, never a graph over
    n·d values.  A model whose logits are linear in its parameters needs not even that: its logits at w(p) are the same
    mix of the clients' logits, computed once.
    """

    def __init__(self, updates: Updates, model: nn.Module, inputs: Tensor, batchnorm: BatchNormMode = "mixed") -> None:
        self.spec, self.original = updates.spec, model
        # Convolutions on the CPU are faster on this layout; the values are the same.
        self.inputs = inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs
        self.moments = batchnorm == "moments"
        self.matrix = to_moments(updates.matrix, self.spec) if self.moments else updates.matrix
        self.model = server_model(model, batchnorm)
        self.reestimated = batchnorm == "reestimate" and has_batchnorm(model)
        linear = getattr(model, "linear_in_parameters", False)
        self.vertices = client_logits(updates, model, inputs) if linear else None

    def mix(self, p: Tensor) -> Tensor:
        """(d,) the model w(p)."""
        vector = p.to(self.matrix.device, self.matrix.dtype) @ self.matrix
        return from_moments(vector, self.spec) if self.moments else vector

    def model_at(self, p: Tensor) -> Tensor:
        """(d,) the model to ship for p: w(p), with BatchNorm statistics re-estimated if that is the mode."""
        vector = self.mix(p)
        return reestimate(self.original, self.spec, vector, self.inputs) if self.reestimated else vector

    @torch.no_grad()
    def logits(self, p: Tensor) -> Tensor:
        """(N, C) logits of w(p) on all inputs."""
        if self.vertices is not None:
            mixed: Tensor = torch.tensordot(p.to(self.vertices), self.vertices, dims=1)
            return mixed
        return self.spec.call(self.model, self.mix(p), self.inputs)

    @torch.no_grad()
    def logit_scale(self, samples: int = 32) -> float:
        """The typical spread of a single client's logits, on the first ``samples`` inputs."""
        if self.vertices is not None:
            return logit_scale(self.vertices)
        few = self.inputs[:samples]
        rows = (from_moments(row, self.spec) if self.moments else row for row in self.matrix)
        return logit_scale(torch.stack([self.spec.call(self.model, row, few) for row in rows]))

    def gradient(self, p: Tensor, index: Tensor, loss: Loss) -> tuple[float, Tensor]:
        """The loss at w(p) on the mini-batch ``index`` and its gradient (n,) in p, float64: g_i = ⟨∂L/∂w, w_i⟩."""
        if self.vertices is not None:
            batch = self.vertices[:, index]
            logits = torch.tensordot(p.to(batch), batch, dims=1).requires_grad_()
            value = loss(logits, index)
            (outer,) = torch.autograd.grad(value, logits)
            inner = torch.tensordot(batch.to(torch.float64), outer.to(torch.float64), dims=2)
            return value.item(), inner.cpu()
        vector = (p.to(self.matrix.device, self.matrix.dtype) @ self.matrix).requires_grad_()
        model = from_moments(vector, self.spec) if self.moments else vector
        value = loss(self.spec.call(self.model, model, self.inputs[index]), index)
        (outer,) = torch.autograd.grad(value, vector)
        inner = (self.matrix @ outer).to(torch.float64)
        # A huge client overflows float32 even at weight 0, and one such entry would stop the search for everybody.
        for i in torch.nonzero(~torch.isfinite(inner)).flatten().tolist():
            inner[i] = self.matrix[i].to(torch.float64) @ outer.to(torch.float64)
        return value.item(), inner.cpu()
