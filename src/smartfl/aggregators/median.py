"""Coordinate-wise median."""

from __future__ import annotations

from dataclasses import dataclass

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.columns import by_columns, middle
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class Median(Aggregator):
    """Per coordinate the median of the n values; for even n the mean of the two middle ones.

    Yin et al. 2018, "Byzantine-robust distributed learning". Ignores sample counts. Valid for f < n/2.
    """

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        return Aggregate(by_columns(middle, updates.matrix))

    def tolerates(self, n: int) -> int | None:
        return (n - 1) // 2
