"""A rule that also says, every round, what the paper's proof takes for granted.

    PYTHONPATH=benchmarks smartfl reproduce studies/assumption.toml --out runs --export results/assumption

``aggregator = { name = "assumption:Witnessed", rule = { name = "smartfl" } }`` logs the cross-entropy L_s on the
server's samples of the new model and of the best single client: the proof of convergence assumes that the first is no
higher.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F

from smartfl.aggregators import Aggregator
from smartfl.aggregators.proxy import client_logits, labels_of, model_logits, require_proxy
from smartfl.aggregators.wrapper import Wrapper
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class Witnessed(Wrapper):
    """``rule``, with L_s(w^{t+1}) and min_i L_s(w_i) in what it reports; n + 1 forward passes besides the rule."""

    rule: Aggregator

    @property
    def needs_proxy(self) -> Literal["labelled"]:  # type: ignore[override]
        return "labelled"

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        found = self.rule(updates, server)
        labels = labels_of(proxy)
        with torch.no_grad():
            new = F.cross_entropy(model_logits(updates, model, found.vector, proxy.inputs).double(), labels)
            alone = [F.cross_entropy(z.double(), labels) for z in client_logits(updates, model, proxy.inputs)]
        best = torch.stack(alone).nan_to_num(torch.inf).min()
        return replace(found, info={**found.info, "new_loss": float(new), "best_client_loss": float(best)})
