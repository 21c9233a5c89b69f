"""What a round and a run leave behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from smartfl.types import Dropped


@dataclass(frozen=True)
class Seconds:
    """Where a round's time went."""

    train: float
    aggregate: float
    evaluate: float


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it is logged.

    accuracy, loss     of the new global model on the test set; None in rounds that are not evaluated
    proxy_loss         of the new global model on the server's samples; None without them
    malicious_mass     Σ of the coefficients of compromised clients; None where the rule has no coefficients
    """

    round: int
    accuracy: float | None
    loss: float | None
    proxy_loss: float | None
    malicious_mass: float | None
    seconds: Seconds
    ids: tuple[int, ...]
    coefficients: tuple[float, ...] | None
    malicious: tuple[int, ...]
    dropped: tuple[Dropped, ...] = ()
    info: dict[str, float] = field(default_factory=dict)
    events: tuple[str, ...] = ()

    def round_line(self) -> dict[str, Any]:
        """The line of rounds.jsonl."""
        line = asdict(self)
        for key in ("ids", "coefficients", "malicious"):
            del line[key]
        return line

    def coefficients_line(self) -> dict[str, Any]:
        """The line of coefficients.jsonl."""
        return {
            "round": self.round,
            "ids": list(self.ids),
            "coefficients": None if self.coefficients is None else list(self.coefficients),
            "malicious": list(self.malicious),
        }


@dataclass(frozen=True)
class Result:
    """A finished run: accuracy after the last round, the best, and the mean of the last ten evaluated rounds."""

    final: float
    best: float
    last_ten: float
    rounds: int

    @classmethod
    def of(cls, accuracies: list[float], rounds: int) -> Result:
        tail = accuracies[-10:]
        return cls(accuracies[-1], max(accuracies), sum(tail) / len(tail), rounds)
