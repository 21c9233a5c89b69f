"""A run directory as plain values: what every table, figure and report is drawn from."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from smartfl.errors import UserError
from smartfl.report.naming import attack_label, method_name

LAST = 10  # rounds in "mean of the last ten"


@dataclass(frozen=True)
class RoundData:
    """A line of rounds.jsonl; a number that is absent or not finite is None."""

    round: int
    accuracy: float | None
    loss: float | None
    proxy_loss: float | None
    malicious_mass: float | None
    seconds: Mapping[str, float]
    dropped: tuple[tuple[int, str], ...]
    info: Mapping[str, float]
    events: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RoundData:
        return cls(
            round=int(line["round"]),
            accuracy=_number(line.get("accuracy")),
            loss=_number(line.get("loss")),
            proxy_loss=_number(line.get("proxy_loss")),
            malicious_mass=_number(line.get("malicious_mass")),
            seconds=_numbers(line.get("seconds")),
            dropped=tuple((int(d["id"]), str(d["reason"])) for d in line.get("dropped") or ()),
            info=_numbers(line.get("info")),
            events=tuple(e if isinstance(e, str) else json.dumps(e) for e in line.get("events") or ()),
            warnings=tuple(map(str, line.get("warnings") or ())),
        )


@dataclass(frozen=True)
class RoundWeights:
    """A line of coefficients.jsonl: the cohort, the weight of each client (None where the rule has none), attackers."""

    round: int
    ids: tuple[int, ...]
    coefficients: tuple[float | None, ...] | None
    malicious: frozenset[int]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RoundWeights:
        weights = line.get("coefficients")
        ids = tuple(map(int, line["ids"]))
        if weights is not None and len(weights) != len(ids):
            raise ValueError(f"{len(weights)} coefficients for {len(ids)} ids")
        return cls(
            round=int(line["round"]),
            ids=ids,
            coefficients=None if weights is None else tuple(map(_number, weights)),
            malicious=frozenset(map(int, line.get("malicious") or ())),
        )

    @property
    def uniform_mass(self) -> float | None:
        """The weight attackers would hold if every client of the cohort counted the same."""
        return sum(i in self.malicious for i in self.ids) / len(self.ids) if self.ids else None


@dataclass(frozen=True)
class RunData:
    """One run directory, finished or still in progress.

    experiment   the resolved experiment.toml
    environment  environment.json, empty where there is none
    rounds       by round, ascending; a round written twice counts once, as written last
    weights      by round, ascending; empty where there is no coefficients.jsonl
    called       the name a study gives to the run's method and setting; empty outside of studies
    """

    path: Path
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    rounds: tuple[RoundData, ...]
    weights: tuple[RoundWeights, ...]
    called: str = ""

    @classmethod
    def read(cls, path: str | Path) -> RunData:
        """Read a run directory; a last line cut short by a running or killed writer is left out."""
        folder = Path(path)
        file = folder / "experiment.toml"
        if not file.is_file():
            inside = "; its subdirectories are: " + f"{folder}/*" if any(folder.glob("*/experiment.toml")) else ""
            raise UserError(f"{folder} is not a run directory: it holds no experiment.toml{inside}")
        try:
            experiment = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{file} is not TOML: {error}") from error
        return cls(
            path=folder,
            experiment=experiment,
            environment=_environment(folder / "environment.json"),
            rounds=tuple(_by_round(folder / "rounds.jsonl", RoundData)),
            weights=tuple(_by_round(folder / "coefficients.jsonl", RoundWeights)),
        )

    @property
    def name(self) -> str:
        return str(self.experiment.get("name", self.path.name))

    @property
    def seed(self) -> int:
        return int(self.experiment.get("seed", 0))

    @property
    def planned_rounds(self) -> int | None:
        planned = self.experiment.get("rounds")
        return planned if isinstance(planned, int) else None

    @property
    def finished(self) -> bool:
        return self.planned_rounds is None or len(self.rounds) >= self.planned_rounds

    @property
    def method(self) -> str:
        return method_name(self.experiment.get("aggregator", {}))

    @property
    def label(self) -> str:
        """Method, attack and seed in one line."""
        attack = attack_label(self.experiment.get("attack", {}))
        return " · ".join([self.method, *([attack] if attack else []), f"seed {self.seed}"])

    @property
    def attacked(self) -> bool:
        return bool(self.attackers or attack_label(self.experiment.get("attack", {})))

    @cached_property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(r.accuracy for r in self.rounds if r.accuracy is not None)

    @property
    def final(self) -> float | None:
        return self.accuracies[-1] if self.accuracies else None

    @property
    def best(self) -> float | None:
        return max(self.accuracies, default=None)

    @property
    def last_ten(self) -> float | None:
        """Mean accuracy of the last ten rounds (of all, where there are fewer)."""
        return _mean(self.accuracies[-LAST:])

    @property
    def trend(self) -> float | None:
        """How far the later half of the last ten rounds is above the earlier half, by mean accuracy; None of fewer."""
        last = self.accuracies[-LAST:]
        if len(last) < LAST:
            return None
        return (math.fsum(last[LAST // 2 :]) - math.fsum(last[: LAST // 2])) / (LAST // 2)

    @property
    def malicious_mass(self) -> float | None:
        """Weight of all attackers together, averaged over the rounds that have one; None where nobody attacks.

        Rounds before the attack begins (``attack.since``) do not count.
        """
        given = [r.malicious_mass for r in self.rounds if r.malicious_mass is not None and r.round >= self._since]
        return _mean(given) if self.attacked else None

    @property
    def uniform_mass(self) -> float | None:
        """What ``malicious_mass`` would be under equal weights."""
        given = [m for w in self.weights if (m := w.uniform_mass) is not None and w.round >= self._since]
        return _mean(given) if self.attacked else None

    @property
    def _since(self) -> int:
        since = self.experiment.get("attack", {}).get("since")
        return since if isinstance(since, int) else 0

    @property
    def seconds_per_round(self) -> float | None:
        return _mean([sum(r.seconds.values()) for r in self.rounds if r.seconds])

    @cached_property
    def attackers(self) -> frozenset[int]:
        """Every client that was malicious in any round."""
        return frozenset().union(*(w.malicious for w in self.weights))

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """Every client id: 0 … data.clients − 1 where the records agree with that, else those that were seen."""
        seen = set(self.attackers).union(
            *(w.ids for w in self.weights), *({i for i, _ in r.dropped} for r in self.rounds)
        )
        count = self.experiment.get("data", {}).get("clients")
        if isinstance(count, int) and all(0 <= i < count for i in seen):
            return tuple(range(count))
        return tuple(sorted(seen))


Line = TypeVar("Line", RoundData, RoundWeights)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _numbers(table: object) -> dict[str, float]:
    if not isinstance(table, Mapping):
        return {}
    return {str(k): n for k, v in table.items() if (n := _number(v)) is not None}


def _mean(values: list[float] | tuple[float, ...]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _environment(file: Path) -> dict[str, Any]:
    """The machine and versions; a report can do without them, so an unreadable file is an empty one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _by_round(file: Path, kind: type[Line]) -> list[Line]:
    try:
        lines = file.read_bytes().decode("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    filled = [(number, text) for number, text in enumerate(lines, 1) if text.strip()]
    found: dict[int, Line] = {}
    for position, (number, text) in enumerate(filled):
        try:
            line = kind.of(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if position == len(filled) - 1:
                break
            raise UserError(f"{file} line {number} is not a record of a round ({error})") from error
        found[line.round] = line
    return [found[r] for r in sorted(found)]
