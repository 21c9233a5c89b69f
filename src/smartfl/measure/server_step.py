"""SmartFL's server step and the plain training steps that it is measured against."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor

from smartfl.aggregators.agreement import agreeing, agreement
from smartfl.aggregators.calibration import best_scale, class_balance
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.mistrust import HEARINGS, Mistrust
from smartfl.aggregators.proxy import minibatches
from smartfl.aggregators.restraint import restrained
from smartfl.aggregators.simplex_descent import SteadyAdam
from smartfl.aggregators.smartfl import SmartFL
from smartfl.flat import FlatSpec
from smartfl.measure.training import Workload
from smartfl.simplex import project_rows
from smartfl.types import Proxy, Server, Updates


@dataclass(frozen=True)
class Part:
    """A piece of the step: what to call, and how often a whole step calls it."""

    work: Callable[[], object]
    calls: int


class ServerStep:
    """``clients`` models around one another and ``samples`` random proxy samples."""

    def __init__(self, workload: Workload, clients: int = 32, samples: int = 128, epochs: int = 20) -> None:
        self.model, self.epochs, self.batch = workload.build(), epochs, 32
        spec, generator = FlatSpec.of(self.model), torch.Generator().manual_seed(0)
        origin = spec.flatten(self.model)
        noise = torch.randn(clients, spec.size, generator=generator)
        rows = origin + 0.1 * noise * (origin.abs() + 0.01)  # variances start at 1 and stay positive
        self.updates = Updates.of(spec.clamp_variances_(rows), origin=origin, spec=spec)
        inputs = torch.randn(samples, *workload.shape, generator=generator)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (samples,), generator=generator)
        self.proxy = Proxy(inputs, self.labels, 10)

    @property
    def steps(self) -> int:
        """Mini-batches of a whole server step."""
        return self.epochs * -(-len(self.proxy) // self.batch)

    def settled(self) -> SmartFL:
        """SmartFL in later rounds: every client has been heard as often as it is."""
        rule, past, nothing = SmartFL(), Mistrust(), torch.zeros(len(self.updates), dtype=torch.float64)
        for _ in range(HEARINGS):
            past.learn(self.updates.ids, nothing, nothing)
        rule.load_state_dict(past.state_dict())
        return rule

    def aggregate(self, rule: SmartFL) -> None:
        """The whole rule, screening and all."""
        rule(self.updates, Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(1)))

    def plain_step(self) -> Callable[[], None]:
        """A forward and a backward pass of the same model on one batch after another, and nothing else."""
        model = deepcopy(self.model).train()
        for parameter in model.parameters():
            if parameter.ndim == 4:  # the fast layout, as in the step itself
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        inputs = self.proxy.inputs
        batches = cycle(minibatches(len(inputs), self.batch, 1, torch.Generator().manual_seed(1)))

        def step() -> None:
            index = next(batches)
            model.zero_grad(set_to_none=False)
            F.cross_entropy(model(inputs[index]), self.labels[index]).backward()

        return step

    def parts(self) -> dict[str, Part]:
        """The pieces of a calibrated step with BatchNorm statistics re-estimated, SmartFL's default, in round 1."""
        hull = Hull(self.updates, self.model, self.proxy.inputs, "reestimate")
        p, index = self.updates.weights, torch.arange(self.batch)
        everything = torch.arange(len(self.proxy))
        balance = class_balance(self.labels, 10)
        weights = hull.by_layer(p)
        logits, gradient = hull.logits(p).clone(), torch.randn(weights.shape, dtype=torch.float64)
        optimizer = SteadyAdam(1e-2)

        def pass_and_back() -> None:
            hull.model.settle()
            hull.model.gradient(F.cross_entropy(hull.model(hull.inputs[index]), self.labels[index]))

        def move() -> None:
            q = weights.clone()
            optimizer.step(q, gradient)
            project_rows(q)

        def loss(logits: Tensor, index: Tensor) -> Tensor:
            return F.cross_entropy(logits, self.labels[index])

        def begin() -> None:
            hull.forget()  # logits are kept
            cosines = agreement(hull, self.updates, loss)
            SmartFL().choose_start(hull, self.updates, self.proxy, agreeing(cosines))

        def draw_back() -> None:
            hull.forget()
            equal = torch.full_like(p, 1 / len(p))
            corner = hull.by_layer(F.one_hot(torch.tensor(0), len(p)).to(p))
            restrained(corner, equal, lambda q: float(loss(hull.logits(q), everything)), math.inf, len(everything), 0.5)

        def spread() -> None:
            hull.forget()  # it is computed once
            hull.logit_scale()

        return {
            "mix pᵀW": Part(lambda: hull.mix_into(weights, hull.model.vector), self.steps),
            "forward and backward": Part(pass_and_back, self.steps),
            "W·g": Part(lambda: hull.products(weights, hull.model.vector), self.steps),
            "Adam and projection": Part(move, self.steps),
            "choice of the start": Part(begin, 1),
            "scale refit": Part(lambda: best_scale(logits, self.labels, balance, 0.1, low=1.0), self.epochs),
            "clients' logit scale": Part(spread, 1),
            "hearing all clients": Part(lambda: hull.opinions(range(len(p))), 1),
            "restraint": Part(draw_back, 1),
            "memory": Part(lambda: hull.gradient(weights, everything, loss), 1),
            "re-estimated statistics and check": Part(lambda: hull.result(weights), 1),
        }
