"""What a round and a run leave behind."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from smartfl.types import Aggregate, Dropped, Updates


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
    events, warnings   what the rule did out of the ordinary; why its result may not be worth much
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
    warnings: tuple[str, ...] = ()

    def round_line(self) -> dict[str, Any]:
        """The line of rounds.jsonl; a loss that is infinite or NaN is null there, as JSON has no such numbers."""
        line = asdict(self)
        for key in ("ids", "coefficients", "malicious"):
            del line[key]
        for key in ("loss", "proxy_loss"):
            line[key] = _finite(line[key])
        line["info"] = {key: _finite(value) for key, value in self.info.items()}
        return line

    def coefficients_line(self) -> dict[str, Any]:
        """The line of coefficients.jsonl."""
        return {
            "round": self.round,
            "ids": list(self.ids),
            "coefficients": None if self.coefficients is None else list(self.coefficients),
            "malicious": list(self.malicious),
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
    def of(cls, accuracies: list[float], rounds: int) -> Result:
        tail = accuracies[-10:]
        return cls(accuracies[-1], max(accuracies), sum(tail) / len(tail), rounds)


def join_groups(
    t: int,
    accuracy: float | None,
    loss: float | None,
    proxy_loss: float | None,
    seconds: Seconds,
    updates: list[Updates],
    aggregates: list[Aggregate],
    malicious: frozenset[int],
    extra: dict[str, float],
    warnings: tuple[str, ...] = (),
) -> RoundRecord:
    """Join the groups' results, ordered by client id; with G groups each group's coefficients count for 1/G."""
    weights: dict[int, float] = {}
    for group, aggregate in zip(updates, aggregates, strict=True):
        if aggregate.coefficients is not None:
            share = aggregate.coefficients / len(updates)
            weights |= dict(zip(group.ids, share.tolist(), strict=True))
    ids = sorted(i for group in updates for i in group.ids)
    dropped = tuple(d for a in aggregates for d in a.dropped)
    if set(ids) <= {d.id for d in dropped}:
        warnings += ("every client of the round was refused: the global model is kept (rounds.jsonl has the reasons)",)
    known = all(a.coefficients is not None for a in aggregates)
    info: dict[str, float] = {}
    for g, aggregate in enumerate(aggregates):
        prefix = f"model{g}/" if len(aggregates) > 1 else ""
        info |= {f"{prefix}{k}": float(v) for k, v in aggregate.info.items()}
    return RoundRecord(
        round=t,
        accuracy=accuracy,
        loss=loss,
        proxy_loss=proxy_loss,
        malicious_mass=math.fsum(weights.get(i, 0.0) for i in malicious) if known else None,
        seconds=seconds,
        ids=tuple(ids),
        coefficients=tuple(weights.get(i, 0.0) for i in ids) if known else None,
        malicious=tuple(sorted(malicious)),
        dropped=dropped,
        info=info | extra,
        events=tuple(e for a in aggregates for e in a.events),
        warnings=warnings,
    )
