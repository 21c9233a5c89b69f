"""SmartFL's server step with one part changed, as rules that a study can name.

    PYTHONPATH=benchmarks smartfl reproduce studies/ablation-digits.toml --out runs --export results/ablation-digits

``aggregator = { name = "ablation:Ablated", part = "balance" }`` is SmartFL without class-balanced weights, and so on
for every ``Part``; the second group are candidates that are not in SmartFL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.calibration import CalibratedLoss, class_balance, log_prior, price_of_scale
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.proxy import client_logits, labels_of, minibatches, require_proxy
from smartfl.aggregators.shortening import within_reach
from smartfl.aggregators.simplex_descent import Descent, SteadyAdam, descend
from smartfl.aggregators.smartfl import SmartFL
from smartfl.optimizers import FlatAdam, FlatOptimizer
from smartfl.types import Aggregate, Proxy, Server, Updates

Part = Literal[
    # what SmartFL has, off
    "centring",  # the raw gradient, as in the paper
    "median",  # the gradient minus its mean in place of its median
    "balance",  # every sample counts the same
    "scale",  # s = 1: plain cross-entropy
    "refit",  # s fitted at the start only
    "decay",  # constant step
    "floor",  # plain Adam: small gradients magnified
    "classes",  # classes without samples not discounted
    # what SmartFL has not, on
    "common moment",  # Adam with one second moment for all clients
    "mirror",  # exponentiated gradient
    "prior",  # a tenth of the price of scale, times KL(p ‖ uniform): a pull towards uniform weights
    "averaging",  # the mean of the second half of the iterates
    "best client",  # the best single client where its proxy loss is lower than the mix's: the proof's assumption
    "paired test",  # uniform weights unless the mix is better by two standard errors of the paired difference
]


@dataclass
class CommonAdam:
    """Adam whose second moment is the mean over the coordinates: all clients step by the same measure."""

    lr: float
    mean: Tensor | None = None
    square: float = 0.0
    count: int = 0

    def step(self, w: Tensor, gradient: Tensor) -> None:
        self.count += 1
        old = torch.zeros_like(w) if self.mean is None else self.mean
        self.mean = 0.9 * old + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * float(gradient.square().mean())
        root = (self.square / (1 - 0.999**self.count)) ** 0.5
        w -= self.lr * (self.mean / (1 - 0.9**self.count)) / (root + 1e-8)


@dataclass
class Mirror:
    """w ← w · exp(−η g) / Σ, the gradient divided by the largest so far so that η needs no units."""

    lr: float
    largest: float = 0.0

    def step(self, w: Tensor, gradient: Tensor) -> None:
        self.largest = max(self.largest, float(gradient.abs().max()))
        w *= torch.exp(-self.lr * gradient / max(self.largest, 1e-30))
        w /= w.sum()


@dataclass(frozen=True)
class Unlimited(SmartFL):
    """SmartFL on updates of any length."""

    reach: ClassVar[float] = math.inf


@dataclass(frozen=True)
class Ablated(SmartFL):
    """SmartFL with ``part`` taken away or put in."""

    part: Part = "centring"

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        found = super().aggregate(updates, server)
        if self.part not in ("best client", "paired test") or found.coefficients is None:
            return found
        model, proxy = require_proxy(self, server, labelled=True)
        updates, _ = within_reach(updates, self.reach)
        hull = Hull(updates, model, proxy.inputs, self.batchnorm)
        labels = labels_of(proxy)
        mixed = F.cross_entropy(hull.logits(found.coefficients).double(), labels, reduction="none")
        if self.part == "best client":
            alone = client_logits(updates, model, proxy.inputs).double()
            losses = torch.stack([F.cross_entropy(z, labels) for z in alone]).nan_to_num(torch.inf)
            if not losses.min() < mixed.mean():
                return found
            p = F.one_hot(losses.argmin(), len(updates)).to(torch.float64)
        else:
            p = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
            gain = F.cross_entropy(hull.logits(p).double(), labels, reduction="none") - mixed
            if gain.mean() > 2 * gain.std() / len(gain) ** 0.5:
                return found
        return replace(found, vector=hull.model_at(p), coefficients=p, events=(*found.events, f"{self.part} chosen"))

    def _optimise(
        self, hull: Hull, start: Tensor, proxy: Proxy, generator: torch.Generator, ids: Sequence[int]
    ) -> Descent:
        labels = labels_of(proxy)
        weights = class_balance(labels, proxy.num_classes)
        prior = log_prior(labels, proxy.num_classes)
        if self.part == "classes":
            prior = torch.zeros_like(prior)
        if self.part == "balance":
            weights = torch.ones_like(weights)
        price = self.penalty * price_of_scale(hull.logit_scale(), len(start), len(labels))
        loss = CalibratedLoss(hull.logits(start).clone(), labels, weights, prior, price)
        if self.part == "refit":
            loss.refit()
        visited: list[Tensor] = []

        def gradient(p: Tensor, index: Tensor) -> tuple[float, Tensor]:
            visited.append(p)
            value, g = hull.gradient(p, index, loss)
            if self.part == "prior":
                g = g + 0.1 * loss.scale * price / self.penalty * torch.log(p.clamp_min(1e-3 / len(p)) * len(p))
            return value, g - g.mean() if self.part == "median" else g

        optimizers: dict[str, FlatOptimizer] = {
            "common moment": CommonAdam(self.lr),
            "mirror": Mirror(self.lr),
            "floor": FlatAdam(self.lr),
        }
        found = descend(
            start,
            gradient,
            [minibatches(len(proxy), self.batch_size, 1, generator) for _ in range(self.server_epochs)],
            optimizers.get(self.part, SteadyAdam(self.lr)),
            centre=self.part not in ("centring", "median"),
            each_epoch=None if self.part in ("scale", "refit") else lambda p: loss.refit(),
            decay=self.part != "decay",
        )
        if self.part == "averaging" and visited:
            return replace(found, p=torch.stack(visited[len(visited) // 2 :]).mean(dim=0))
        return found
