"""SmartFL's server step with one part changed, as rules that a study can name.

    PYTHONPATH=benchmarks smartfl reproduce studies/ablation-digits.toml --out runs --export results/ablation-digits

``aggregator = { name = "ablation:Ablated", part = "balance" }`` is SmartFL without class-balanced weights, and so on
for every ``Part``; the second group are candidates that are not in SmartFL, and need ``layered = false``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.calibration import CalibratedLoss
from smartfl.aggregators.columns import middle
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.mistrust import Mistrust
from smartfl.aggregators.proxy import client_logits, labels_of, minibatches, require_proxy
from smartfl.aggregators.shortening import within_reach
from smartfl.aggregators.simplex_descent import Descent, SteadyAdam, descend
from smartfl.aggregators.smartfl import Found, SmartFL, Task
from smartfl.errors import UserError
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
    "contradiction",  # the memory forgets who contradicted the labels
    "damage",  # … and what a step towards whom would have cost
    "charge",  # who contradicts pays λ, as for damage, and not λs
    "rise",  # weights are drawn back though the loss rises
    "alone",  # who contradicts takes part in every search, at its charge
    "breadth",  # who contradicts is left out however few classes the others have
    # what SmartFL has not, on: CANDIDATES
    "common moment",  # Adam with one second moment for all clients
    "mirror",  # exponentiated gradient
    "hopeless",  # clients that do no better than guessing, at the best scale of their logits, stay out
    "left out",  # clients that contradict the labels stay out
    "leave one out",  # starts at the clients whose absence from the average raises the loss
    "held out",  # a quarter of the samples is kept back; the weights of the epoch that does best on it are returned
    "region",  # no further than 1 from the FedAvg weights, of at most 2
    "prior",  # a tenth of the price of scale, times KL(p ‖ uniform): a pull towards uniform weights
    "averaging",  # the mean of the second half of the iterates
    "best client",  # the best single client where its proxy loss is lower than the mix's: the proof's assumption
    "paired test",  # uniform weights unless the mix is better by two standard errors of the paired difference
]

CANDIDATES = get_args(Part)[get_args(Part).index("common moment") :]  # they have one weight a client


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


class Unscaled(CalibratedLoss):
    """s = 1."""

    def refit(self) -> None:
        pass


class FittedOnce(CalibratedLoss):
    """s of the first logits that it sees."""

    def refit(self) -> None:
        if self.scale == 1.0:
            super().refit()


class DamageOnly(Mistrust):
    """A memory of damage, not of contradiction."""

    def learn(self, ids: Sequence[int], k: Tensor, breadth: Tensor) -> None:
        pass


class OutOfNoSearch(Mistrust):
    """A memory by which everybody takes part."""

    def left_out(self, ids: Sequence[int]) -> Tensor:
        return torch.zeros(len(ids), dtype=torch.bool)


class AnyBreadth(Mistrust):
    """A memory that does not ask how many classes clients have."""

    broad: ClassVar[float] = 0.0


class ContradictionOnly(Mistrust):
    """A memory of contradiction, not of damage."""

    def observe(self, ids: Sequence[int], x: Tensor) -> None:
        pass


@dataclass(frozen=True)
class Unlimited(SmartFL):
    """SmartFL on updates of any length."""

    reach: ClassVar[float] = math.inf


@dataclass(frozen=True)
class Ablated(SmartFL):
    """SmartFL with ``part`` taken away or put in."""

    part: Part = "centring"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part in CANDIDATES and self.layered:
            raise UserError(f'part = "{self.part}" needs layered = false')
        memories: dict[str, type[Mistrust]] = {
            "contradiction": DamageOnly,
            "damage": ContradictionOnly,
            "alone": OutOfNoSearch,
            "left out": OutOfNoSearch,  # it does that by itself, however few the others are
            "breadth": AnyBreadth,
        }
        object.__setattr__(self, "_past", memories.get(self.part, Mistrust)())

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        found = super().aggregate(updates, server)
        if self.part not in ("best client", "paired test", "region") or found.coefficients is None:
            return found
        model, proxy = require_proxy(self, server, labelled=True)
        updates, _ = within_reach(updates, self.reach)
        hull = Hull(updates, model, proxy.inputs, self.batchnorm)
        labels = labels_of(proxy)
        if self.part == "region":
            p = updates.weights.cpu()
            step = found.coefficients - p
            p = p + step / max(1.0, float(step.abs().sum()))
            return replace(found, vector=hull.model_at(p), coefficients=p)
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

    def choose_start(self, hull: Hull, updates: Updates, proxy: Proxy, agreed: Tensor | None) -> Tensor:
        if self.part != "leave one out":
            return super().choose_start(hull, updates, proxy, agreed)
        loss, p = self._loss(hull, proxy), updates.weights.cpu()
        others = [torch.where(torch.arange(len(p)) == i, 0.0, p) for i in range(len(p))]
        lost = torch.tensor([loss.value(hull.logits(q / q.sum())) for q in others], dtype=torch.float64)
        missed = (lost - loss.value(hull.logits(p))).nan_to_num(0.0, posinf=0.0, neginf=0.0).clamp_min(0)
        return missed / missed.sum() if missed.any() else p

    def _dear(self, hull: Hull, loss: CalibratedLoss, ids: Sequence[int]) -> Tensor:
        if self.part == "charge":
            return (self.mistrust or 0.0) * loss.price * self._past.of(ids)
        return super()._dear(hull, loss, ids)

    def _find(self, hull: Hull, start: Tensor, task: Task, ids: Sequence[int]) -> Found:
        return super()._find(hull, start, replace(task, before=math.inf) if self.part == "rise" else task, ids)

    def _loss(self, hull: Hull, proxy: Proxy) -> CalibratedLoss:
        loss = super()._loss(hull, proxy)
        if self.part == "classes":
            loss.prior = torch.zeros_like(loss.prior)
        if self.part == "balance":
            loss.weights = torch.ones_like(loss.weights)
        if self.part in ("scale", "refit"):
            kind = Unscaled if self.part == "scale" else FittedOnce
            return kind(loss.latest, loss.labels, loss.weights, loss.prior, loss.price)
        return loss

    def _out(self, hull: Hull, loss: CalibratedLoss, ids: Sequence[int]) -> Tensor:
        """(n,) bool: who stays out of the search; nobody where that would be everybody."""
        out = torch.zeros(len(ids), dtype=torch.bool)
        if self.part == "left out":
            out = self._past.contradict(ids)
        if self.part == "hopeless":
            corners = torch.eye(len(ids), dtype=torch.float64)
            alone = torch.tensor([loss.value(hull.logits(corner)) - loss.price for corner in corners])
            out = alone >= math.log(len(loss.prior))
        return torch.zeros_like(out) if out.all() else out

    def _search(self, hull: Hull, start: Tensor, task: Task, ids: Sequence[int]) -> Descent:
        proxy, generator = task.proxy, task.generator
        one = start.view(-1, len(ids))[0]  # the rows of a start are equal
        loss = self._loss(hull, proxy).refitted(hull.logits(one))
        dear = self._dear(hull, loss, ids)
        out = self._out(hull, loss, ids)
        if out.any():
            start = torch.where(out, 0.0, start + 1e-6)  # the start may be on none of those who are left
            start /= start.sum()
        if self.part == "mirror":  # a factor never leads away from 0
            start = 0.9 * start + 0.1 / len(start)
        order = torch.randperm(len(proxy), generator=generator) if self.part == "held out" else torch.arange(len(proxy))
        kept, used = order.tensor_split([len(proxy) // 4 if self.part == "held out" else 0])
        visited: list[Tensor] = []
        judged: list[tuple[float, Tensor]] = []

        def gradient(p: Tensor, index: Tensor) -> tuple[float, Tensor]:
            visited.append(p.clone())
            value, g = hull.gradient(p, index, loss)
            value, g = value + float((p @ dear).sum()), g + dear
            if self.part == "prior":
                pull = 0.1 * loss.scale * loss.price / self.penalty
                g = g + pull * torch.log(p.clamp_min(1e-3 / len(p)) * len(p))
            if out.any():  # whoever is out has no say in what the others share
                g = torch.where(out, 1e3 * loss.price, g - middle(g[~out][:, None]))
            return value, g - g.mean(dim=-1, keepdim=True) if self.part == "median" else g

        def each_epoch(p: Tensor) -> None:
            if len(kept):
                judged.append((float(loss(hull.logits(p)[kept], kept)), p.clone()))
            loss.refit()

        optimizers: dict[str, FlatOptimizer] = {
            "common moment": CommonAdam(self.lr),
            "mirror": Mirror(self.lr),
            "floor": FlatAdam(self.lr),
        }
        batches = [minibatches(len(used), self.batch_size, 1, generator) for _ in range(self.server_epochs)]
        found = descend(
            start,
            gradient,
            [[used[index] for index in epoch] for epoch in batches],
            optimizers.get(self.part, SteadyAdam(self.lr)),
            centre=self.part not in ("centring", "median") and not out.any(),
            each_epoch=each_epoch,
            decay=self.part != "decay",
        )
        if len(kept):
            each_epoch(found.p)
            return replace(found, p=min(judged, key=lambda pair: pair[0])[1])
        if self.part == "averaging" and visited:
            return replace(found, p=torch.stack(visited[len(visited) // 2 :]).mean(dim=0))
        return found
