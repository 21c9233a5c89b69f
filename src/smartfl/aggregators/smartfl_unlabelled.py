"""SmartFL-U: optimise the clients' weights on unlabelled samples, with the clients' ensemble as the teacher."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.batchnorm import BatchNormMode
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    minibatches,
    model_logits,
    require_proxy,
)
from smartfl.aggregators.simplex_descent import check_search, descend
from smartfl.aggregators.smartfl import SmartFL
from smartfl.aggregators.teacher import distillation_loss, teacher_probabilities, unbiased_labels
from smartfl.errors import UserError
from smartfl.optimizers import FlatAdam
from smartfl.types import Aggregate, NeedsProxy, Proxy, Server, Updates


@dataclass(frozen=True)
class SmartFLUnlabelled(Aggregator):
    """w ← Σ p_i w_i with p = argmin over the simplex of a loss to pseudo-labels that the clients make together.

    ``variant``

        literal      the paper to the letter (Xie et al., arXiv 2211.05554): FedDF's soft pseudo-labels q = softmax of
                     the clients' mean logits, KL(q ‖ softmax z_{w(p)}), Adam 5e-4 with the raw gradient
        centred      the same with the centred gradient, as SmartFL's
        calibrated   the calibrated step of SmartFL on hard pseudo-labels without the clients' class bias
                     (``unbiased_labels``, docs/method.md), Adam 1e-2

    Steps of 5e-4 for 20 epochs move a weight by 0.04 at most: the first two stay near FedAvg by design and are not
    meant for attacks.  The third holds against a minority that agrees on a direction, as the median counts clients and
    a choir has fewer voices than singers (``voices``); not against label flips that win the first rounds: without a
    label nobody can tell which of two consistent worlds is the true one.  With several architectures the teacher is the
    server's, the mean logits over the clients of all, and holds against nobody.
    """

    needs_proxy: ClassVar[NeedsProxy] = "unlabelled"
    widens: ClassVar[bool] = True

    variant: Literal["calibrated", "centred", "literal"] = "calibrated"
    server_epochs: int = 20
    lr: float | None = None
    batch_size: int = 32
    temperature: float = 1.0
    batchnorm: BatchNormMode | None = None

    def __post_init__(self) -> None:
        check_search(self.server_epochs, self.batch_size, self.lr)
        if not self.temperature > 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")
        calibrated = self.variant == "calibrated"
        if self.lr is None:  # written out, so that the records of a run say what it used
            object.__setattr__(self, "lr", 1e-2 if calibrated else 5e-4)
        if self.batchnorm is None:
            object.__setattr__(self, "batchnorm", "reestimate" if calibrated else "mixed")

    def tolerates(self, n: int) -> int | None:
        return None

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        assert server is not None
        members = client_logits(updates, model, proxy.inputs)
        keep, events = finite_clients(updates, members)
        if not keep.any():
            return global_model_kept(updates, *events)
        if len(updates) == 1 or self.server_epochs == 0:
            return weighted(updates, updates.weights)
        teacher = members[keep] if server.teacher is None else server.teacher[None]
        where = torch.nonzero(keep).flatten().cpu()
        if self.variant == "calibrated":
            before = None if server.teacher is not None else model_logits(updates, model, updates.origin, proxy.inputs)
            if before is not None and not torch.isfinite(before).all():
                before = None
            labels = unbiased_labels(teacher, before)
            found = self._calibrated(updates.select(where), server, proxy, labels)
        else:
            found = self._distilled(updates.select(where), server, proxy, teacher)
        assert found.coefficients is not None
        p = torch.zeros(len(updates), dtype=torch.float64).index_copy(0, where, found.coefficients.cpu())
        return replace(found, coefficients=p, events=events + found.events)

    def _calibrated(self, updates: Updates, server: Server, proxy: Proxy, labels: Tensor) -> Aggregate:
        """SmartFL with the pseudo-labels for labels."""
        assert self.lr is not None
        assert self.batchnorm is not None
        rule = SmartFL(
            server_epochs=self.server_epochs,
            lr=self.lr,
            batch_size=self.batch_size,
            init="agreement",
            batchnorm=self.batchnorm,
            mistrust=0.0,  # what pseudo-labels hold against a client is hearsay
            restraint=0.0,
            layered=False,  # not tried
        )
        found = rule.aggregate(updates, replace(server, proxy=replace(proxy, labels=labels)))
        return replace(found, info={**found.info, "pseudo_classes": len(labels.unique())})

    def _distilled(self, updates: Updates, server: Server, proxy: Proxy, teacher: Tensor) -> Aggregate:
        """The paper's: steps from FedAvg towards the teacher's probabilities."""
        assert server.model is not None
        assert self.lr is not None
        assert self.batchnorm is not None
        q = teacher_probabilities(teacher, "avg_logits", self.temperature)
        hull = Hull(updates, server.model, proxy.inputs, self.batchnorm)

        def loss(logits: Tensor, index: Tensor) -> Tensor:
            return distillation_loss(q[index], logits, self.temperature)

        start = updates.weights.cpu()
        found = descend(
            start,
            gradient=lambda p, index: hull.gradient(p, index, loss),
            batches=[minibatches(len(proxy), self.batch_size, 1, server.generator) for _ in range(self.server_epochs)],
            optimizer=FlatAdam(self.lr),
            centre=self.variant != "literal",
        )
        student = distillation_loss(q, hull.logits(found.p), self.temperature)
        info = {"kl": student.item(), "moved": float((found.p - start).abs().sum())}
        vector, logits = hull.result(found.p)
        if torch.isfinite(logits).all():
            return Aggregate(vector, found.p, info, found.events)
        event = "statistics on the proxy data are not finite: not taken"
        return Aggregate(hull.mix(found.p), found.p, info, (*found.events, event))
