"""A run as plain values: what every table, figure and report is drawn from."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from smartfl.errors import UserError
from smartfl.records.lines import read_lines
from smartfl.records.naming import attack_label, method_name
from smartfl.records.result import LAST, Result
from smartfl.records.round import RoundRecord


@dataclass(frozen=True)
class RunRecord:
    """One run, finished or still in progress.

    path         its directory; of a run in a file of records the file and the run's name in it
    experiment   the resolved experiment.toml
    environment  environment.json, empty where there is none
    rounds       by round, ascending; a round written twice counts once, as written last
    called       the name a study gives to the run's method and setting; empty outside of studies
    """

    path: Path
    experiment: Mapping[str, Any]
    environment: Mapping[str, Any]
    rounds: tuple[RoundRecord, ...]
    called: str = ""

    @classmethod
    def read(cls, path: str | Path) -> RunRecord:
        """Read a run directory; a last line cut short by a running or killed writer is left out."""
        folder = Path(path)
        file = folder / "experiment.toml"
        if not file.is_file():
            inside = "; its subdirectories are: " + f"{folder}/*" if any(folder.glob("*/experiment.toml")) else ""
            raise UserError(f"{folder} is not a run directory: it holds no experiment.toml{inside}")
        return cls(folder, read_settings(file), _environment(folder / "environment.json"), _rounds(folder))

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
    def cohorts(self) -> tuple[RoundRecord, ...]:
        """The rounds whose clients are on record."""
        return tuple(r for r in self.rounds if r.ids)

    @cached_property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(r.accuracy for r in self.rounds if r.accuracy is not None)

    @cached_property
    def result(self) -> Result | None:
        """As far as the run is; None before the first evaluation."""
        return Result.of(self.accuracies, self.rounds[-1].round) if self.accuracies else None

    @property
    def final(self) -> float | None:
        return None if self.result is None else self.result.final

    @property
    def best(self) -> float | None:
        return None if self.result is None else self.result.best

    @property
    def last_ten(self) -> float | None:
        return None if self.result is None else self.result.last_ten

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
        given = [m for r in self.rounds if (m := r.uniform_mass) is not None and r.round >= self._since]
        return _mean(given) if self.attacked else None

    @property
    def _since(self) -> int:
        since = self.experiment.get("attack", {}).get("since")
        return since if isinstance(since, int) else 0

    @property
    def seconds_per_round(self) -> float | None:
        return _mean([r.seconds.total for r in self.rounds if r.seconds is not None])

    @cached_property
    def attackers(self) -> frozenset[int]:
        """Every client that was malicious in any round."""
        return frozenset().union(*(r.malicious for r in self.rounds))

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """Every client id: 0 … data.clients − 1 where the records agree with that, else those that were seen."""
        seen = set(self.attackers).union(
            *(r.ids for r in self.rounds), *({d.id for d in r.dropped} for r in self.rounds)
        )
        count = self.experiment.get("data", {}).get("clients")
        if isinstance(count, int) and all(0 <= i < count for i in seen):
            return tuple(range(count))
        return tuple(sorted(seen))


def read_settings(file: Path) -> dict[str, Any]:
    """The tables of an experiment.toml."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not TOML: {error}") from error


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _environment(file: Path) -> dict[str, Any]:
    """The machine and versions; a report can do without them, so an unreadable file is an empty one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _rounds(folder: Path) -> tuple[RoundRecord, ...]:
    """rounds.jsonl, each with its line of coefficients.jsonl."""
    lines, cohorts = (_lines(folder / f"{name}.jsonl") for name in ("rounds", "coefficients"))
    who = {line.get("round"): line for line in cohorts}
    found: dict[int, RoundRecord] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = RoundRecord.of(line, who.get(line.get("round")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{folder / 'rounds.jsonl'}: record {number} is not one of a round ({error})") from error
        found[record.round] = record
    return tuple(found[r] for r in sorted(found))


def _lines(file: Path) -> list[dict[str, Any]]:
    return read_lines(file, refuse=True) if file.exists() else []
