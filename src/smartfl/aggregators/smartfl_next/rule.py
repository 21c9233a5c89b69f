"""SmartFL rebuilt: one objective over the clients' weights, one search, then how far to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.batchnorm import has_batchnorm, reestimate_and_predict
from smartfl.aggregators.calibration import CalibratedLoss, price_of_scale
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.overflow import on_finite_clients
from smartfl.aggregators.proxy import labels_of, minibatches, require_proxy
from smartfl.aggregators.shortening import within_reach
from smartfl.aggregators.smartfl_next.evidence import Evidence, agreement_by_part, prior
from smartfl.aggregators.smartfl_next.length import best_length, best_repetition
from smartfl.aggregators.smartfl_next.price import description_length
from smartfl.aggregators.smartfl_next.search import NaturalGradient
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Proxy, Server, Updates


@dataclass(frozen=True, eq=False)
class State:
    """What is carried from round to round: the clients' evidence and the last step w^t − w^{t−1} (P,)."""

    evidence: Evidence = field(default_factory=Evidence)
    step: Tensor | None = None


@dataclass(frozen=True)
class SmartFLNext(Aggregator):
    """w^{t+1} = w^t + γ Σ_i p_i Δ_i + β (w^t − w^{t−1}), p, γ and β chosen on the server's labelled samples.

        rows        no update Δ_i = w_i − w^t longer than ``reach`` times the median one
        prior π     ∝ max(0, a_i), a_i the client's agreement with the server's gradient over its rounds (``Evidence``)
        search      p = argmin  L(w(p)) + ``price`` · D(p) / N   over a row on the simplex for every layer (class),
                    L the class-balanced loss at the best scale of the logits (``CalibratedLoss``), D the description
                    length of p given π (``description_length``), N samples; ``steps`` mini-batches of
                    ``NaturalGradient``
        length      γ by a line search on L (``best_length``), then β (``best_repetition``)

    With price 1 the objective is the negative log posterior of weights with prior exp(−D).  Each part can be switched
    off: ``layers``, ``evidence`` (then a_i is this round's alone), ``length``, ``repeat``, ``price = 0``.  BatchNorm
    statistics are re-estimated on the proxy samples.  An instance belongs to one federation; ids must mean the same
    client in every round.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"
    widens: ClassVar[bool] = True

    steps: int = 20
    batch_size: int = 32
    rate: float = 0.5
    momentum: float = 0.5
    penalty: float = 0.5
    price: float = 0.5
    reach: float = 2.0
    floor: float = 0.03
    layers: bool = True
    evidence: bool = True
    length: bool = True
    repeat: bool = True
    _state: list[State] = field(default_factory=lambda: [State()], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        NaturalGradient(self.rate, self.momentum)
        for name, least in (("steps", 0), ("batch_size", 1), ("penalty", 0), ("price", 0), ("reach", 1)):
            if not getattr(self, name) >= least:
                raise UserError(f"{name} = {getattr(self, name)} must be at least {least}")
        if not 0 < self.floor <= 1:
            raise UserError(f"floor = {self.floor} must be above 0 and at most 1")

    def tolerates(self, n: int) -> int | None:
        return None

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        updates, shortened = within_reach(updates, self.reach)
        before, after = self._state[0], [self._state[0]]

        def search(among: Updates, hull: Hull) -> Aggregate | None:
            found, after[0] = self._round(among, hull, proxy, server.generator, before)
            return found

        found = on_finite_clients(search, updates, lambda among: Hull(among, model, proxy.inputs, "reestimate"))
        self._state[0] = after[0]
        return Aggregate(
            found.vector, found.coefficients, {**found.info, "shortened": shortened}, found.events, found.dropped
        )

    def _round(
        self, updates: Updates, hull: Hull, proxy: Proxy, generator: torch.Generator, state: State
    ) -> tuple[Aggregate | None, State]:
        """The round's result and the state after it; None where its model overflows."""
        price = self.penalty * price_of_scale(hull.logit_scale(), len(updates), len(proxy))
        loss = CalibratedLoss.of(labels_of(proxy), proxy.num_classes, price)
        size = updates.spec.num_parameters
        origin = updates.origin[:size]
        parts = hull.parts or [[slice(0, size)]]
        agreement = agreement_by_part(updates, parts, hull.slope(updates.origin, loss)[:size])
        evidence = (state.evidence if self.evidence else Evidence()).after(updates.ids, agreement)
        start = prior(evidence.scores(updates.ids), updates.weights.cpu(), self.floor)

        p = self._search(hull, loss, start, proxy, generator)
        mixed = hull.mix(p)
        step = mixed[:size] - origin

        def loss_at(move: Tensor) -> float:
            return loss.value(hull.logits_at(torch.cat([origin + move, mixed[size:]])))

        gamma, lowest = best_length(lambda x: loss_at(x * step)) if self.length else (1.0, loss_at(step))
        step = gamma * step
        last = state.step
        beta = best_repetition(lambda x: loss_at(step + x * last), lowest) if self.repeat and last is not None else 0.0
        if last is not None and beta:
            step = step + beta * last
        vector, logits = self._shipped(hull, torch.cat([origin + step, mixed[size:]]))
        if not torch.isfinite(logits).all():
            return None, state
        share = hull.shares(p)
        info = {
            "moved": float((share - updates.weights.cpu()).abs().sum()),
            "effective_clients": float(1 / share.square().sum()),
            "length": gamma,
            "repeated": beta,
        }
        return Aggregate(vector, share, info), State(evidence, step)

    def _search(
        self, hull: Hull, loss: CalibratedLoss, start: Tensor, proxy: Proxy, generator: torch.Generator
    ) -> Tensor:
        """p (n,) or (L, n): the search from the prior ``start`` (n,)."""
        rows = start
        if self.layers:
            by_class = hull.by_class(start)
            rows = hull.by_layer(start) if by_class is None else by_class
        fitted = loss.refitted(hull.logits(start))

        def gradient(p: Tensor, index: Tensor) -> Tensor:
            slope = hull.gradient(p, index, fitted)[1]
            return slope + self.price / len(proxy) * description_length(p, start)[1]

        def batches() -> Iterator[Tensor]:
            while True:
                yield from minibatches(len(proxy), self.batch_size, 1, generator)
                fitted.refit()

        return NaturalGradient(self.rate, self.momentum)(rows.clone(), gradient, batches(), self.steps)

    def _shipped(self, hull: Hull, vector: Tensor) -> tuple[Tensor, Tensor]:
        """``vector`` (d,) with the BatchNorm statistics that it ships with, and its logits."""
        if has_batchnorm(hull.original):
            return reestimate_and_predict(hull.original, hull.spec, vector, hull.inputs)
        return vector, hull.logits_at(vector)

    def state_dict(self) -> dict[str, Any]:
        state = self._state[0]
        return state.evidence.state_dict() | ({} if state.step is None else {"step": state.step})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state[0] = State(Evidence.of(state), state.get("step"))
