"""A number over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (divisor n − 1; None for one value) of a quantity over seeds."""

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Over the values that exist; None where there are none."""
        found = [v for v in values if v is not None]
        if not found:
            return None
        return cls(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None)

    def text(self, scale: float = 1, digits: int = 2) -> str:
        mean = f"{self.mean * scale:.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std * scale:.{digits}f}"
