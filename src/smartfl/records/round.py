"""What a round leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

COHORT = ("ids", "coefficients", "malicious")  # what is in coefficients.jsonl and not in rounds.jsonl


@dataclass(frozen=True)
class Dropped:
    """A client whose row was refused, and why."""

    id: int
    reason: str


@dataclass(frozen=True)
class Seconds:
    """Where a round's time went."""

    train: float = 0.0
    aggregate: float = 0.0
    evaluate: float = 0.0

    @property
    def total(self) -> float:
        return self.train + self.aggregate + self.evaluate


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it is logged, and as it is read again; what is absent or not finite is then None.

    accuracy, loss     of the new global model on the test set; None in rounds that are not evaluated
    proxy_loss         of the new global model on the server's samples; None without them
    malicious_mass     Σ of the coefficients of compromised clients; None where the rule has no coefficients
    ids                the cohort; empty where a record was stored without its clients
    coefficients       of the cohort's clients; None where the rule has none
    events, warnings   what the rule did out of the ordinary; why its result may not be worth much
    """

    round: int
    accuracy: float | None
    loss: float | None
    proxy_loss: float | None
    malicious_mass: float | None
    seconds: Seconds | None
    ids: tuple[int, ...] = ()
    coefficients: tuple[float | None, ...] | None = None
    malicious: tuple[int, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    info: Mapping[str, float] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: Mapping[str, Any], cohort: Mapping[str, Any] | None = None) -> RoundRecord:
        """From a line of rounds.jsonl and the one of coefficients.jsonl; ValueError, TypeError or KeyError if wrong."""
        who = cohort or {}
        ids, weights = tuple(map(int, who.get("ids") or ())), who.get("coefficients")
        if weights is not None and len(weights) != len(ids):
            raise ValueError(f"{len(weights)} coefficients for {len(ids)} ids")
        seconds = _numbers(line.get("seconds"))
        return cls(
            round=int(line["round"]),
            accuracy=_number(line.get("accuracy")),
            loss=_number(line.get("loss")),
            proxy_loss=_number(line.get("proxy_loss")),
            malicious_mass=_number(line.get("malicious_mass")),
            seconds=Seconds(**seconds) if seconds else None,
            ids=ids,
            coefficients=None if weights is None else tuple(map(_number, weights)),
            malicious=tuple(map(int, who.get("malicious") or ())),
            dropped=tuple(Dropped(int(d["id"]), str(d["reason"])) for d in line.get("dropped") or ()),
            info=_numbers(line.get("info")),
            events=tuple(e if isinstance(e, str) else json.dumps(e) for e in line.get("events") or ()),
            warnings=tuple(map(str, line.get("warnings") or ())),
        )

    @property
    def uniform_mass(self) -> float | None:
        """The weight attackers would hold if every client of the cohort counted the same."""
        return len(set(self.ids).intersection(self.malicious)) / len(self.ids) if self.ids else None

    def round_line(self) -> dict[str, Any]:
        """The line of rounds.jsonl; a loss that is infinite or NaN is null there, as JSON has no such numbers."""
        line = asdict(self)
        for key in COHORT:
            del line[key]
        for key in ("loss", "proxy_loss"):
            line[key] = _number(line[key])
        line["info"] = {key: _number(value) for key, value in self.info.items()}
        return line

    def coefficients_line(self) -> dict[str, Any]:
        """The line of coefficients.jsonl."""
        return {
            "round": self.round,
            "ids": list(self.ids),
            "coefficients": None if self.coefficients is None else list(self.coefficients),
            "malicious": list(self.malicious),
        }


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _numbers(table: object) -> dict[str, float]:
    if not isinstance(table, Mapping):
        return {}
    return {str(k): n for k, v in table.items() if (n := _number(v)) is not None}
