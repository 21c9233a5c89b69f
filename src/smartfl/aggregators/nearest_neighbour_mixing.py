"""Nearest-neighbour mixing: every client is replaced by the mean of the clients nearest to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count
from smartfl.aggregators.distances import squared_distances
from smartfl.aggregators.wrapper import Wrapper
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class NearestNeighbourMixing(Wrapper):
    """``rule`` on y_i = (1/(n − f)) Σ_{j ∈ N_i} w_j, N_i the n − f clients nearest to i, itself among them.

    Allouah et al. 2023, "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity". Distances see
    trainable parameters only; buffers are mixed like parameters. Coefficients are mapped back to the clients:
    p = Mᵀ q with M the mixing matrix and q what the rule gave to the mixed rows. Ties go to the smallest id.
    Needs f < n/2; ``f`` is given, or round(fraction · n) capped at ⌈n/2⌉ − 1. The rule inside has settings of its
    own: give it the same f. O(n² d), and one more (n, d) matrix.
    """

    rule: Aggregator
    f: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_assumption("f", self.f, self.fraction)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        n = len(updates)
        f, events = byzantine_count("f", self.f, self.fraction, updates, (n - 1) // 2)
        nearest = squared_distances(updates.parameters).argsort(dim=1, stable=True)[:, : n - f]
        mixing = torch.zeros((n, n), dtype=torch.float64, device=updates.matrix.device)
        mixing.scatter_(1, nearest, 1 / (n - f))
        result = self.rule(updates.with_matrix(mixing.to(updates.matrix.dtype) @ updates.matrix), server)
        coefficients = result.coefficients
        if coefficients is not None:
            coefficients = mixing.T @ coefficients.to(mixing.device, torch.float64)
        return replace(result, coefficients=coefficients, events=events + result.events)

    def tolerates(self, n: int) -> int | None:
        own, inside = assumed(self.f, self.fraction, n, (n - 1) // 2), self.rule.tolerates(n)
        return own if inside is None else min(own, inside)
