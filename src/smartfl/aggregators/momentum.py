"""Momentum whose length the server's samples choose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.batchnorm import has_batchnorm, reestimate_and_predict
from smartfl.aggregators.calibration import CalibratedLoss
from smartfl.aggregators.proxy import labels_of, model_logits, require_proxy
from smartfl.aggregators.wrapper import Wrapper
from smartfl.types import Aggregate, NeedsProxy, Proxy, Server, Updates


@dataclass(frozen=True)
class Momentum(Wrapper):
    """w ← w̄ + τ (w^t − w^{t−1}), w̄ the model of ``rule``, τ the one of {0, ¼, ½, ¾} with the lowest proxy loss.

    With a fixed τ this is the heavy ball (Polyak 1964), and around FedAvg it is ``FedAvgM``.  Rounds that lead the same
    way are worth a longer step, and where clients of few classes lead the model to and fro a longer step is wrong;
    the labelled samples know which it is, at the cost of a forward pass for each τ.  The loss is class-balanced
    cross-entropy at the best scale of the logits (``CalibratedLoss``).  One number is fitted to all samples.

    It moves trainable parameters; w^t − w^{t−1} is the last round's whole step, and 0 at first.  A model with BatchNorm
    gets the statistics that it sees on the proxy inputs, whatever τ is, as ``Reestimated`` does.  Where a longer step
    overflows it is not taken.  Coefficients are the rule's, and a round without a valid client changes nothing.
    """

    lengths: ClassVar[tuple[float, ...]] = (0.0, 0.25, 0.5, 0.75)

    rule: Aggregator
    _state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def needs_proxy(self) -> NeedsProxy:  # type: ignore[override]
        return "labelled"

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        _, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        result = self.rule(updates, server)
        size = updates.spec.num_parameters
        last = self._state.get("step", torch.zeros_like(result.vector[:size])).to(result.vector)
        loss = CalibratedLoss.of(labels_of(proxy), proxy.num_classes)
        best, lowest, length = result.vector, torch.inf, 0.0
        for tau in self.lengths if last.any() else self.lengths[:1]:
            vector = result.vector.clone()
            vector[:size] += tau * last
            vector, logits = _at(vector, updates, server, proxy)
            if (value := loss.fit(logits)) < lowest:
                best, lowest, length = vector, value, tau
        self._state["step"] = best[:size] - updates.origin[:size]
        return replace(result, vector=best, info={**result.info, "momentum": length})

    def state_dict(self) -> dict[str, Any]:
        return {**self._state, **{f"rule.{name}": value for name, value in self.rule.state_dict().items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state.clear()
        self._state.update({name: value for name, value in state.items() if name == "step"})
        inner = {name.removeprefix("rule."): value for name, value in state.items() if name.startswith("rule.")}
        self.rule.load_state_dict(inner)


def _at(vector: Tensor, updates: Updates, server: Server, proxy: Proxy) -> tuple[Tensor, Tensor]:
    """The model ``vector`` (d,) as it would be shipped, and its logits (N, C) on the proxy inputs."""
    assert server.model is not None
    if has_batchnorm(server.model):
        return reestimate_and_predict(server.model, updates.spec, vector, proxy.inputs)
    return vector, model_logits(updates, server.model, vector, proxy.inputs)
