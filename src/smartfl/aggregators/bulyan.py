"""Bulyan: Krum chooses the clients, then every coordinate is averaged around its median."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count
from smartfl.aggregators.columns import ascending, by_columns, mean_of_runs
from smartfl.aggregators.distances import squared_distances
from smartfl.aggregators.krum import krum_scores
from smartfl.types import Aggregate, Server, Updates


def select_by_krum(distances: Tensor, f: int, theta: int) -> list[int]:
    """θ rounds of Krum on what is left: the winners' positions in ``distances`` (n, n), in the order of winning."""
    rest, chosen = list(range(len(distances))), list[int]()
    for _ in range(theta):
        winner = int(krum_scores(distances[rest][:, rest], f).argmin())
        chosen.append(rest.pop(winner))
    return chosen


def mean_around_median(values: Tensor, beta: int) -> Tensor:
    """Per column the mean of the β values closest to the column's median; (n, k) → (k,).

    In sorted order these values are neighbours, so only where the run starts is to be found.  Where the values just
    outside both ends are equally far, the lower one is taken: the result does not depend on the order of the rows.
    """
    ordered = ascending(values)
    n = ordered.shape[1]
    median = mean_of_runs(ordered[:, (n - 1) // 2 : n // 2 + 1])[:, None]
    above, below = ordered[:, beta:] - median, median - ordered[:, : n - beta]
    start = (above < below).sum(dim=1, keepdim=True)
    return mean_of_runs(ordered.gather(1, start + torch.arange(beta, device=ordered.device)))


@dataclass(frozen=True)
class Bulyan(Aggregator):
    """θ = n − 2f clients chosen by repeated Krum, then per coordinate the mean of the β = θ − 2f closest to the median.

    El Mhamdi, Guerraoui & Rouault 2018, "The hidden vulnerability of distributed learning in Byzantium". Needs
    n ≥ 4f + 3. As the set shrinks, Krum's k = |rest| − f − 2 is held at 1 or more; at k = 1 the two of a nearest pair
    tie, and the smaller id is taken. Buffers: the uniform mean over the selected clients, which is also what
    ``coefficients`` says; parameters have no weight per client.
    ``f`` is given, or round(fraction · n) capped at ⌊(n − 3)/4⌋; f = 0 is the uniform mean. O(n² d + n³ log n).
    """

    f: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_assumption("f", self.f, self.fraction)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n = len(updates)
        f, events = byzantine_count("f", self.f, self.fraction, updates, max(0, (n - 3) // 4))
        theta = n - 2 * f
        chosen = sorted(select_by_krum(squared_distances(updates.parameters), f, theta)) if f else list(range(n))
        p = torch.zeros_like(updates.num_examples)
        p[chosen] = 1 / theta
        vector = updates.mix(p)
        parameters = updates.parameters
        vector[: updates.spec.num_parameters] = by_columns(
            lambda values: mean_around_median(values[chosen], theta - 2 * f), parameters
        )
        return Aggregate(vector, p, {"f": f, "selected": theta}, events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.f, self.fraction, n, (n - 3) // 4)
