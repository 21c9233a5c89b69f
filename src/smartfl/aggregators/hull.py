"""The convex hull of the client models as a search space: logits and gradients at w(p) = Σ p_i w_i."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property

import torch
from torch import Tensor, nn

from smartfl.aggregators.batchnorm import (
    BatchNormMode,
    from_moments,
    has_batchnorm,
    reestimate,
    reestimate_and_predict,
    to_moments,
)
from smartfl.aggregators.calibration import logit_scale
from smartfl.aggregators.layers import classes, layers
from smartfl.aggregators.proxy import client_logits
from smartfl.aggregators.standing import StandingModel
from smartfl.products import inner_products, mix_rows
from smartfl.types import Updates

FEW = 8  # inputs on which the spread of every client's logits is measured
SOME = 128  # inputs at most on which a client is heard: of half as many, what it knows is too noisy

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps the logits (b, C) of a mini-batch and its index (b,) to a scalar."""


class Hull:
    """The model w(p) on the server's inputs (N, …), for any p (n,) on the simplex, or one for every part, p (L, n).

    A step costs one mix pᵀW, one forward and backward pass, and one product W·g: never n models, never a graph over
    n·d values.  A model whose logits are linear in its parameters needs not even that: its logits at w(p) are the same
    mix of the clients' logits, computed once.  The parts of such a model are its classes, those of others their layers.
    """

    def __init__(self, updates: Updates, model: nn.Module, inputs: Tensor, batchnorm: BatchNormMode = "mixed") -> None:
        self.spec, self.original = updates.spec, model
        # Convolutions on the CPU are faster on this layout; the values are the same.
        self.inputs = inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs
        self.moments = batchnorm == "moments"
        self.matrix = to_moments(updates.matrix, self.spec) if self.moments else updates.matrix
        self.reestimated = batchnorm == "reestimate" and has_batchnorm(model)
        linear = getattr(model, "linear_in_parameters", False)
        self.vertices = client_logits(updates, model, inputs) if linear else None
        self.model = StandingModel(model, self.spec, batchnorm, updates.origin.dtype, updates.matrix.device)
        self.parts = layers(self.spec, model) if self.vertices is None else classes(self.spec, self.vertices.shape[2])
        self._seen: dict[bytes, Tensor] = {}  # logits by p: a round asks for a dozen, some of them twice
        self._scale: float | None = None

    def among(self, clients: Tensor, updates: Updates) -> Hull:
        """The hull of ``updates``, those of some ``clients`` (m,): a face of this one, with its model and inputs."""
        face = copy(self)
        face.__dict__.pop("_class_vertices", None)
        face.matrix = to_moments(updates.matrix, self.spec) if self.moments else updates.matrix
        face.vertices = None if self.vertices is None else self.vertices[clients]
        face.forget()
        return face

    def forget(self) -> None:
        """Compute what was asked for anew when it is asked for again."""
        self._seen, self._scale = {}, None

    def mix(self, p: Tensor) -> Tensor:
        """(d,) the model w(p)."""
        vector = self.mix_into(p, torch.empty_like(self.model.vector))
        return from_moments(vector, self.spec) if self.moments else vector

    def model_at(self, p: Tensor) -> Tensor:
        """(d,) the model to ship for p: w(p), with BatchNorm statistics re-estimated if that is the mode."""
        vector = self.mix(p)
        return reestimate(self.original, self.spec, vector, self.inputs) if self.reestimated else vector

    def result(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """``model_at(p)`` and its logits (N, C) on all inputs, in one pass where statistics are re-estimated."""
        if self.reestimated:
            return reestimate_and_predict(self.original, self.spec, self.mix(p), self.inputs)
        return self.model_at(p), self.logits(p)

    def each_result(self) -> Tensor:
        """(n, N, C) the logits of every client by itself, as ``result`` has them."""
        if self.vertices is not None:  # a corner would mix them, and 0 · ∞ is NaN
            return self.vertices
        return torch.stack([self.result(corner)[1] for corner in torch.eye(len(self.matrix), dtype=torch.float64)])

    @torch.no_grad()
    def logits(self, p: Tensor) -> Tensor:
        """(N, C) logits of w(p) on all inputs; asked again for the same p, they are not computed again."""
        if self.vertices is not None:
            return self._mixed(p, self.vertices) if p.ndim == 1 else self._mixed(p, self._class_vertices)
        if (key := p.cpu().numpy().tobytes()) not in self._seen:
            self._stand(p)
            self._seen[key] = self.model(self.inputs)
        return self._seen[key]

    @torch.no_grad()
    def logits_at(self, vector: Tensor) -> Tensor:
        """(N, C) logits of the model ``vector`` (d,) on all inputs, which need not be in the hull."""
        self.model.settle(vector)
        return self.model(self.inputs)

    @torch.no_grad()
    def logit_scale(self) -> float:
        """The typical spread of a single client's logits, on the first few inputs; computed once."""
        if self._scale is None:
            self._scale = self._logit_scale()
        return self._scale

    def _logit_scale(self) -> float:
        return logit_scale(self._each(range(len(self.matrix)), FEW) if self.vertices is None else self.vertices)

    @torch.no_grad()
    def opinions(self, clients: Sequence[int]) -> Tensor:
        """(m, M, C) the own logits of m ``clients``: on all inputs where they are known, else on the first 128."""
        return self.vertices[list(clients)] if self.vertices is not None else self._each(clients, SOME)

    def _each(self, clients: Sequence[int], few: int) -> Tensor:
        """(m, few, C) the own logits of m ``clients`` on the first ``few`` inputs: a pass for each."""
        found = []
        for client in clients:
            row = self.matrix[client]
            self.model.settle(from_moments(row, self.spec) if self.moments else row)
            found.append(self.model(self.inputs[:few]))
        return torch.stack(found)

    def gradient(self, p: Tensor, index: Tensor, loss: Loss) -> tuple[float, Tensor]:
        """The loss at w(p) on the mini-batch ``index`` and its gradient in p, float64: g_i = ⟨∂L/∂w, w_i⟩."""
        if self.vertices is not None:
            batch = self.vertices[:, index] if p.ndim == 1 else self._class_vertices[..., index]
            logits = self._mixed(p, batch).requires_grad_()
            value = loss(logits, index)
            (outer,) = torch.autograd.grad(value, logits)
            exact, outer = batch.to(torch.float64), outer.to(torch.float64)
            inner = (
                torch.tensordot(exact, outer, dims=2) if p.ndim == 1 else torch.bmm(exact, outer.T[..., None])[..., 0]
            )
            return value.item(), inner.cpu()
        mixed = self._stand(p)
        value = loss(self.model(self.inputs[index]), index)
        outer = self.model.gradient(value)
        if self.moments:
            vector = mixed.clone().requires_grad_()
            (outer,) = torch.autograd.grad(from_moments(vector, self.spec), vector, outer)
        return value.item(), self.products(p, outer)

    @cached_property
    def _class_vertices(self) -> Tensor:
        """(C, n, N) the vertices once more, as products over all classes at once read them."""
        assert self.vertices is not None
        return self.vertices.permute(2, 0, 1).contiguous()

    @staticmethod
    def _mixed(p: Tensor, vertices: Tensor) -> Tensor:
        """(b, C) the mix by ``p`` (n,) of the clients' logits (n, b, C); class by class by (C, n) of (C, n, b)."""
        p = p.to(vertices)
        return torch.tensordot(p, vertices, dims=1) if p.ndim == 1 else torch.bmm(p[:, None], vertices)[:, 0].T

    def slope(self, vector: Tensor, loss: Loss) -> Tensor:
        """(d,) ∂L/∂w on all inputs at ``vector`` (d,), which need not be in the hull; valid until the next gradient."""
        self.model.settle(vector)
        return self.model.gradient(loss(self.model(self.inputs), torch.arange(len(self.inputs))))

    def _stand(self, p: Tensor) -> Tensor:
        """Put the model at w(p); returns the mix (d,), of moments if that is the mode."""
        if not self.moments:
            self.mix_into(p, self.model.vector)
            self.model.settle()
            return self.model.vector
        mixed = self.mix_into(p, torch.empty_like(self.model.vector))
        self.model.settle(from_moments(mixed, self.spec))
        return mixed

    def by_layer(self, p: Tensor) -> Tensor:
        """(L, n) ``p`` (n,) for every layer; of a model that has only one, ``p`` itself."""
        return p.expand(len(self.parts), -1) if self.vertices is None and len(self.parts) > 1 else p

    def by_class(self, p: Tensor) -> Tensor | None:
        """(C, n) ``p`` (n,) for every class of a model that is linear in its parameters, class by class; or None."""
        if self.vertices is None or not self._classes_apart():
            return None
        return p.expand(len(self.parts), -1)

    @torch.no_grad()
    def _classes_apart(self) -> bool:
        """Whether a class's logits are those of the model whose columns it has: tried out on two random models.

        Clients would not do: those that collude may be alike, and then nothing is seen.
        """
        if not self.parts:
            return False
        both = torch.randn(2, self.spec.size, generator=torch.Generator().manual_seed(0)).to(self.model.vector)
        mixed, found = both[0].clone(), []
        for part in self.parts[1::2]:
            for columns in part:
                mixed[columns] = both[1, columns]
        for vector in (*both, mixed):
            self.model.settle(vector)
            found.append(self.model(self.inputs[:FEW]))
        odd = torch.arange(len(self.parts), device=mixed.device) % 2 == 1
        expected = torch.where(odd, found[1], found[0])
        return torch.allclose(found[2], expected, rtol=0, atol=1e-3 * float(expected.abs().max()))

    def shares(self, p: Tensor) -> Tensor:
        """(n,) each client's share of the parameters: the mean of the rows of ``p`` (L, n) by their parts' size."""
        if p.ndim == 1:
            return p
        last = self.spec.num_parameters
        sizes = [sum(max(0, min(c.stop, last) - c.start) for c in part) for part in self.parts]
        return torch.tensor(sizes, dtype=torch.float64) @ p / last

    def mix_into(self, p: Tensor, vector: Tensor) -> Tensor:
        """``vector`` (d,) ← pᵀW; for ``p`` (L, n) each part's columns with its own row.  Moments are mixed as such."""
        if p.ndim == 1:
            return mix_rows(self.matrix, p, out=vector)
        for row, part in zip(p, self.parts, strict=True):
            for columns in part:
                mix_rows(self.matrix[:, columns], row, out=vector[columns])
        return vector

    def products(self, p: Tensor, outer: Tensor) -> Tensor:
        """W·∂L/∂w in the shape of ``p``: over all columns for (n,), part by part for (L, n)."""
        if p.ndim == 1:
            return inner_products(self.matrix, outer).cpu()
        products = [[inner_products(self.matrix[:, c], outer[c]) for c in part] for part in self.parts]
        return torch.stack([torch.stack(product).sum(dim=0) for product in products]).cpu()
