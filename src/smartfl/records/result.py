"""The numbers that stand for a whole run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LAST = 10  # rounds in "mean of the last ten"


@dataclass(frozen=True)
class Result:
    """A finished run: accuracy after the last round, the best, and the mean of the last ten evaluated rounds.

    ``warnings`` say why these numbers may not be worth much.
    """

    final: float
    best: float
    last_ten: float
    rounds: int
    warnings: tuple[str, ...] = ()

    def table(self) -> dict[str, Any]:
        """The content of result.json; without warnings there is no word of them."""
        table = asdict(self)
        return table if self.warnings else {k: v for k, v in table.items() if k != "warnings"}

    @classmethod
    def of(cls, accuracies: Sequence[float], rounds: int) -> Result:
        """Of the accuracies of all evaluated rounds, at least one."""
        tail = accuracies[-LAST:]
        return cls(accuracies[-1], max(accuracies), math.fsum(tail) / len(tail), rounds)
