"""S-FedAvg: uniform averaging, but clients with a higher Shapley value are sampled more often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from smartfl.aggregators.abavg import accuracies
from smartfl.aggregators.base import Aggregator, weighted
from smartfl.aggregators.proxy import (
    client_logits,
    finite_clients,
    global_model_kept,
    labels_of,
    model_logits,
    require_proxy,
)
from smartfl.errors import UserError
from smartfl.types import Aggregate, NeedsProxy, Server, Updates

NEWCOMER = -1
"""The place of φ⁰ = 1/n_tot among the relevances: what a client has that never took part."""


def shapley_values(
    orders: Iterable[Sequence[int]], values_along: Callable[[Sequence[int]], Iterable[float]], n: int
) -> Tensor:
    """(n,) float64 mean marginal gain of each of n players over ``orders``.

    ``values_along(order)`` yields V(∅), V({o_1}), V({o_1, o_2}), …; if it ends early, the players left gain 0.
    Over all n! orders this is the Shapley value; over any orders Σ sv = V(all) − V(∅) when none ends early.
    """
    gains = torch.zeros(n, dtype=torch.float64)
    count = 0
    for order in orders:
        values = iter(values_along(order))
        before = next(values)
        for player, value in zip(order, values, strict=False):
            gains[player] += value - before
            before = value
        count += 1
    return gains / max(count, 1)


@dataclass(frozen=True)
class SFedAvg(Aggregator):
    """w ← (1/n) Σ w_i; the relevance of the participants, φ_i ← (1 − a) φ_i + a · sv_i, steers who is sampled next.

    sv_i is the Shapley value of client i for V(S) = proxy accuracy of the mean of the models in S, V(∅) that of
    w^t, estimated on ``permutations`` random orders; an order ends where |V(all) − V(S)| < ``truncation``. φ starts
    at 1/n_tot, a = ``rate`` = 0.25. Nagalapatti & Narayanam 2021, "Game of gradients"; settings of the ShapleyFL
    code. The simulator samples cohorts with :meth:`cohort_weights`. Costs permutations · (n − 1) evaluations on the
    proxy data. A client whose predictions overflow gets weight 0 and the value −V(∅), as if it had undone the
    model.
    """

    needs_proxy: ClassVar[NeedsProxy] = "labelled"

    permutations: int = 5
    rate: float = 0.25
    truncation: float = 0.0
    _relevance: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.permutations < 1:
            raise UserError(f"permutations = {self.permutations} must be at least 1")
        if not 0 <= self.rate <= 1:
            raise UserError(f"rate = {self.rate} must lie in [0, 1]")
        if self.truncation < 0:
            raise UserError(f"truncation = {self.truncation} must be at least 0")

    def cohort_weights(self, ids: Sequence[int]) -> Tensor:
        """(len(ids),) float64 sampling probabilities softmax(φ) over ``ids``; uniform before the first round."""
        initial = self._relevance.get(NEWCOMER, 0.0)
        phi = torch.tensor([self._relevance.get(int(i), initial) for i in ids], dtype=torch.float64)
        return torch.softmax(phi, dim=0)

    def values_along(
        self, updates: Updates, model: nn.Module, server: Server, end: float, empty: float
    ) -> Callable[[Sequence[int]], Iterator[float]]:
        """The proxy accuracy of the growing average along an order, from V(∅) = ``empty`` to V(all) = ``end``."""
        _, proxy = require_proxy(self, server, labelled=True)
        labels = labels_of(proxy)

        def along(order: Sequence[int]) -> Iterator[float]:
            yield empty
            total = torch.zeros_like(updates.origin, dtype=torch.float64)
            value = empty
            for k, i in enumerate(order, start=1):
                if abs(end - value) < self.truncation:
                    return
                if k == len(order):
                    yield end
                    return
                total += updates.matrix[i]
                mean = (total / k).to(updates.origin.dtype)
                value = float(accuracies(model_logits(updates, model, mean, proxy.inputs), labels))
                yield value

        return along

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        model, proxy = require_proxy(self, server, labelled=True)
        assert server is not None
        labels = labels_of(proxy)
        empty = float(accuracies(model_logits(updates, model, updates.origin, proxy.inputs), labels))
        finite, events = finite_clients(updates, client_logits(updates, model, proxy.inputs))
        where = torch.nonzero(finite).flatten()
        values = torch.full((len(updates),), -empty, dtype=torch.float64)
        if len(where) == 0:
            self._learn(updates.ids, values, server)
            return global_model_kept(updates, *events, "nobody is left: the global model is kept")
        valid = updates.select(where.cpu())
        p = finite.to(torch.float64) / len(where)
        mean = updates.mix(p)
        end = float(accuracies(model_logits(updates, model, mean, proxy.inputs), labels))
        orders = [torch.randperm(len(valid), generator=server.generator).tolist() for _ in range(self.permutations)]
        along = self.values_along(valid, model, server, end, empty)
        values[where.cpu()] = shapley_values(orders, along, len(valid))
        self._learn(updates.ids, values, server)
        return replace(weighted(updates, p, proxy_accuracy=end, shapley_lowest=float(values.min())), events=events)

    def _learn(self, ids: Sequence[int], values: Tensor, server: Server) -> None:
        initial = self._relevance.setdefault(NEWCOMER, 1 / (server.num_clients or len(ids)))
        for client, value in zip(ids, values.tolist(), strict=True):
            old = self._relevance.get(client, initial)
            self._relevance[client] = (1 - self.rate) * old + self.rate * value

    def tolerates(self, n: int) -> int | None:
        return None

    def state_dict(self) -> dict[str, Any]:
        ids = sorted(self._relevance)
        return {"ids": ids, "relevance": torch.tensor([self._relevance[i] for i in ids], dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._relevance.clear()
        if state:
            self._relevance.update(zip(state["ids"], state["relevance"].tolist(), strict=True))
