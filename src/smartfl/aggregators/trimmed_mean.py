"""Coordinate-wise trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass

from smartfl.aggregators.assumption import assumed, check_assumption
from smartfl.aggregators.base import Aggregator, byzantine_count
from smartfl.aggregators.columns import by_columns, trimmed
from smartfl.types import Aggregate, Server, Updates


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """Per coordinate the mean without the b largest and b smallest values; b = 0 is the uniform mean.

    Yin et al. 2018, "Byzantine-robust distributed learning". Ignores sample counts. Needs 2b < n, and b at least the
    number of attackers. Buffers are trimmed alike. ``b`` is given, or round(fraction · n) capped at ⌈n/2⌉ − 1.
    O(d n log n).
    """

    b: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        check_assumption("b", self.b, self.fraction)

    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        b, events = byzantine_count("b", self.b, self.fraction, updates, (len(updates) - 1) // 2)
        vector = by_columns(lambda values: trimmed(values, b), updates.matrix)
        return Aggregate(vector, info={"b": b}, events=events)

    def tolerates(self, n: int) -> int | None:
        return assumed(self.b, self.fraction, n, (n - 1) // 2)
