"""Any rule, with BatchNorm statistics measured on the server's inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.batchnorm import reestimate
from smartfl.aggregators.proxy import require_proxy
from smartfl.aggregators.wrapper import Wrapper
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


@dataclass(frozen=True)
class Reestimated(Wrapper):
    """The model of ``rule``, its BatchNorm layers holding the mean and variance that they see on the proxy inputs.

    Where clients have one or two classes, the average of their running statistics is the statistics of nothing
    (docs/batchnorm.md).  SmartFL re-estimates by itself; around FedAvg this is the comparison with equal information.
    Labels are not used.  Models without BatchNorm pass as they are.  One forward pass besides the rule.
    """

    rule: Aggregator

    @property
    def needs_proxy(self) -> NeedsProxy:  # type: ignore[override]
        return "unlabelled" if self.rule.needs_proxy == "no" else self.rule.needs_proxy

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=False)
        result = self.rule(updates, server)
        vector = reestimate(model, updates.spec, result.vector, proxy.inputs)
        if not torch.isfinite(vector).all():
            return replace(result, events=(*result.events, "statistics on the proxy data are not finite: not taken"))
        return replace(result, vector=vector)
