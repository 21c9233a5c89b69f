"""FedBE: distil a Bayesian ensemble (average, sampled models, clients) into the average."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import reestimate
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    model_logits,
    require_proxy,
    weights_among,
)
from smartfl.aggregators.server_training import ServerRecipe, finite_or_start, server_epochs
from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


def directional_gaussian(deltas: Tensor, spec: FlatSpec, var_scale: float, noise: Tensor) -> Tensor:
    """(P,) float64 sampled update n̄ (mean + c √var ε) per tensor, the form of FedBE's released code.

    With d_i = Δ_i/‖Δ_i‖ for one tensor: mean and variance (1/n, at least 1e-5) of d_i over clients, n̄ the mean of
    ‖Δ_i‖, c = ``var_scale``, ε = ``noise`` (P,).  A client whose tensor did not change has d_i = 0.
    """
    out = torch.empty(spec.num_parameters, dtype=torch.float64, device=deltas.device)
    for entry in spec.parameters:
        part = deltas[:, entry.start : entry.stop].to(torch.float64)
        norms = part.norm(dim=1, keepdim=True)
        directions = torch.where(norms > 0, part / norms.clamp_min(torch.finfo(torch.float64).tiny), 0)
        spread = directions.var(dim=0, correction=0).clamp_min(1e-5).sqrt()
        sample = directions.mean(dim=0) + var_scale * spread * noise[entry.start : entry.stop]
        out[entry.start : entry.stop] = norms.mean() * sample
    return out


def diagonal_gaussian(rows: Tensor, p: Tensor, noise: Tensor) -> Tensor:
    """(P,) float64 sample μ + σ ε of the paper's posterior: μ = Σ p_i w_i, σ² = Σ p_i (w_i − μ)² per element."""
    mean = torch.zeros_like(noise, dtype=torch.float64)
    variance = torch.zeros_like(mean)
    for row, weight in zip(rows, p, strict=True):
        mean += weight * row.to(torch.float64)
    for row, weight in zip(rows, p, strict=True):
        variance += weight * (row.to(torch.float64) - mean).square()
    return mean + variance.sqrt() * noise


def swa_mean(epochs: Iterable[Tensor], total: int) -> Tensor:
    """(d,) the mean of the models after epochs e = 1 … ``total`` with 2e ≥ total: one snapshot an epoch."""
    late = [e for e in range(1, total + 1) if 2 * e >= total]
    mean: Tensor | None = None
    for e, vector in enumerate(epochs, start=1):
        if e in late:
            share = vector.to(torch.float64) / len(late)
            mean = share if mean is None else mean + share
    assert mean is not None, "at least one epoch"
    return mean.to(vector.dtype)


@dataclass(frozen=True)
class FedBE(Aggregator):
    """The FedAvg model, trained on KL(q ‖ softmax(z)) over the unlabelled proxy data, with the ensemble

        {FedAvg mean} ∪ {``samples`` sampled models} ∪ {client models},   q ∝ q̄^{1/τ},  q̄ their mean probabilities.

    Chen & Chao 2021, "FedBE: making Bayesian model ensemble applicable to federated learning". Models are sampled by

        gaussian        the released code: per tensor, normalised updates, w^t + n̄ (mean + ``var_scale`` √var ε)
        gaussian_paper  the paper: diagonal N(Σ α_i w_i, Σ α_i (w_i − μ)²)
        dirichlet       Σ γ_i w_i with γ ~ Dir(``concentration``)

    Gaussian samples carry the FedAvg buffers (a sampled variance could be negative), Dirichlet samples their own
    mixture. Adam as for every server optimiser of the SmartFL paper. ``swa`` returns the mean of the epochs' ends
    from half of the training on, with BatchNorm re-estimated on the proxy data; the original starts at step 500,
    which 128 samples never reach. E_s = 0 is FedAvg. Labels are never read. ``server.teacher``, when given, is the
    whole ensemble.
    """

    needs_proxy: ClassVar[NeedsProxy] = "unlabelled"

    samples: int = 10
    distribution: Literal["gaussian", "gaussian_paper", "dirichlet"] = "gaussian"
    var_scale: float = 0.1
    concentration: float = 1.0
    use_clients: bool = True
    sharpening: float = 0.5
    server_epochs: int = 20
    lr: float = 1e-3
    batch_size: int = 32
    swa: bool = True

    def __post_init__(self) -> None:
        self._recipe()
        if self.samples < 0:
            raise UserError(f"samples = {self.samples} must be at least 0")
        if self.distribution not in ("gaussian", "gaussian_paper", "dirichlet"):
            accepted = "gaussian, gaussian_paper, dirichlet"
            raise UserError(f"distribution = {self.distribution!r} is unknown; accepted: {accepted}")
        for setting in ("var_scale", "concentration", "sharpening"):
            if not getattr(self, setting) > 0:
                raise UserError(f"{setting} = {getattr(self, setting)} must be above 0")

    def _recipe(self) -> ServerRecipe:
        return ServerRecipe(self.server_epochs, self.lr, self.batch_size)

    def sample_model(self, updates: Updates, generator: torch.Generator) -> Tensor:
        """(d,) one model drawn from the distribution over global models."""
        if self.distribution == "dirichlet":
            seed = int(torch.randint(2**62, (), generator=generator))
            gamma = np.random.default_rng(seed).dirichlet(np.full(len(updates), self.concentration))
            return updates.mix(torch.from_numpy(gamma))
        size = updates.spec.num_parameters
        noise = torch.randn(size, generator=generator, dtype=torch.float64).to(updates.matrix.device)
        vector = updates.mix(updates.weights)
        if self.distribution == "gaussian":
            update = directional_gaussian(updates.deltas, updates.spec, self.var_scale, noise)
            vector[:size] = (updates.origin[:size].to(torch.float64) + update).to(vector.dtype)
        else:
            vector[:size] = diagonal_gaussian(updates.parameters, updates.weights, noise).to(vector.dtype)
        return vector

    def ensemble(
        self, updates: Updates, clients: Tensor, average: Tensor, server: Server
    ) -> tuple[Tensor, tuple[str, ...]]:
        """(k, N, C) logits of the members that predict finite numbers, and an event if some do not.

        ``clients`` (n, N, C) are the clients' logits, ``average`` (d,) is the FedAvg model.
        """
        model, proxy = require_proxy(self, server, labelled=False)
        drawn = [average, *(self.sample_model(updates, server.generator) for _ in range(self.samples))]
        members = torch.stack([model_logits(updates, model, vector, proxy.inputs) for vector in drawn])
        if self.use_clients:
            members = torch.cat([members, clients])
        finite = torch.isfinite(members).flatten(1).all(dim=1)
        lost = int((~finite).sum())
        return members[finite], (f"{lost} sampled models predict no finite numbers: left out",) if lost else ()

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        assert server is not None
        if self.server_epochs == 0:
            return weighted(updates, updates.weights)
        logits = client_logits(updates, model, proxy.inputs)
        finite, events = finite_clients(updates, logits)
        if not finite.any():
            return global_model_kept(updates, *events, "nobody is left: the global model is kept")
        p = weights_among(updates, finite)
        start = updates.mix(p)
        if server.teacher is not None:
            members = server.teacher[None]
        else:
            valid = updates.select(torch.nonzero(finite).flatten().cpu())
            members, lost = self.ensemble(valid, logits[finite], start, server)
            events = (*events, *lost)
        if len(members) == 0 or not torch.isfinite(members).all():
            return Aggregate(start, p, events=(*events, "no finite teacher: no distillation"))
        q = teacher_probabilities(members, "avg_probs", sharpening=self.sharpening).to(start)
        epochs = server_epochs(
            model,
            updates.spec,
            start,
            proxy.inputs,
            lambda z, index: distillation_loss(q[index], z),
            self._recipe(),
            server.generator,
        )
        if self.swa:
            average = swa_mean(epochs, self.server_epochs)
            student = reestimate(model, updates.spec, average, proxy.inputs)
        else:
            student = deque(epochs, maxlen=1)[0]
        vector, diverged = finite_or_start(student, start)
        return Aggregate(vector, p, {"members": len(members)}, (*events, *diverged))
