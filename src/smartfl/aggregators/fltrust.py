"""FLTrust: clients count as far as they agree with an update that the server trained itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.proxy import global_model_kept, labels_of, require_proxy
from smartfl.aggregators.server_training import ServerRecipe, train_on_server
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


def trust_scores(deltas: Tensor, g0: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) float64 TS_i = max(0, cos(Δ_i, g_0)) and the norms ‖Δ_i‖, for ``deltas`` (n, P) and ``g0`` (P,).

    A client that did not move, or a server that did not, gives a score of 0.
    """
    reference = g0.to(torch.float64)
    norms = torch.stack([row.to(torch.float64).norm() for row in deltas])
    dots = torch.stack([row.to(torch.float64) @ reference for row in deltas])
    scale = norms * reference.norm()
    cosines = torch.where(scale > 0, dots / scale.clamp_min(torch.finfo(torch.float64).tiny), 0)
    return cosines.clamp(0, 1), norms


def trusted_update(deltas: Tensor, g0: Tensor, scores: Tensor, norms: Tensor) -> Tensor:
    """(P,) float64 Σ TS_i (‖g_0‖/‖Δ_i‖) Δ_i / ΣTS for scores that are not all 0.

    Row by row in float64: the factor of a row of norm 1e40 is too small for float32.
    """
    share = scores / scores.sum() * g0.to(torch.float64).norm()
    total = torch.zeros_like(g0, dtype=torch.float64)
    for row, weight, norm in zip(deltas, share, norms, strict=True):
        if weight > 0:
            total += row.to(torch.float64) / norm * weight
    return total


@dataclass(frozen=True)
class FLTrust(Aggregator):
    """The server trains from w^t on its labelled data like a client, g_0 = w_srv − w^t, and

        TS_i = max(0, cos(Δ_i, g_0)),   w ← w^t + η Σ TS_i (‖g_0‖/‖Δ_i‖) Δ_i / ΣTS

    Cao et al. 2021, "FLTrust: Byzantine-robust federated learning via trust bootstrapping". Cosines see trainable
    parameters only; buffers are averaged with TS/ΣTS, without rescaling. Sample counts are ignored. Every update is
    shrunk to ‖g_0‖, hence several ``server_epochs``: 128 samples in batches of 32 are four steps an epoch.
    With ΣTS = 0, g_0 = 0 or a diverged server update the global model is kept. Bears any number of attackers, as
    long as one honest client agrees with the server.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    server_epochs: int = 5
    lr: float = 1e-3
    batch_size: int = 32
    optimizer: Literal["adam", "sgd"] = "adam"
    eta: float = 1.0

    def __post_init__(self) -> None:
        self._recipe()
        if not self.eta > 0:
            raise UserError(f"eta = {self.eta} must be above 0")

    def _recipe(self) -> ServerRecipe:
        return ServerRecipe(self.server_epochs, self.lr, self.batch_size, self.optimizer)

    def server_update(self, updates: Updates, server: Server) -> Tensor:
        """(P,) g_0, what the server's own training adds to the global model."""
        model, proxy = require_proxy(self, server, labelled=True)
        labels, origin = labels_of(proxy), updates.origin
        trained = train_on_server(
            model,
            updates.spec,
            origin,
            proxy.inputs,
            lambda logits, index: F.cross_entropy(logits, labels[index]),
            self._recipe(),
            server.generator,
        )
        return (trained - origin)[: updates.spec.num_parameters]

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        require_proxy(self, server, labelled=True)
        assert server is not None
        g0 = self.server_update(updates, server)
        if not torch.isfinite(g0).all():
            return global_model_kept(updates, "the server's own training diverged: the global model is kept")
        scores, norms = trust_scores(updates.deltas, g0)
        info = {"trust": float(scores.sum()), "server_norm": float(g0.to(torch.float64).norm())}
        if info["trust"] <= 0:
            return global_model_kept(updates, "no client agrees with the server: the global model is kept", **info)
        p = scores / scores.sum()
        size = updates.spec.num_parameters
        vector = updates.origin.clone()
        step = trusted_update(updates.deltas, g0, scores, norms)
        vector[:size] = (vector[:size].to(torch.float64) + self.eta * step).to(vector.dtype)
        vector[size:] = p.to(vector.dtype) @ updates.matrix[:, size:]
        return Aggregate(vector, p, info)

    def tolerates(self, n: int) -> int | None:
        return max(0, n - 1)
