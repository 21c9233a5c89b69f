"""What a table shows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smartfl.experiment.study import Metric
from smartfl.records.result import LAST
from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread

TITLES: dict[Metric, str] = {
    "converged": f"test accuracy in %, mean of the last {LAST} evaluated rounds",
    "maximum": "best test accuracy in %",
    "final": "test accuracy in % after the last round",
    "trend": f"points of test accuracy from one half of the last {LAST} evaluated rounds to the other: is it flat?",
    "rounds": "rounds to the target accuracy",
    "mass": "weight on attackers in %, mean over the rounds",
}
ACCURACIES: frozenset[Metric] = frozenset({"converged", "maximum", "final"})
LOWER_IS_BETTER: frozenset[Metric] = frozenset({"rounds", "mass"})


@dataclass(frozen=True)
class Score:
    """A metric over seeds; ``missed`` of them never reached the target and count with all their rounds."""

    spread: Spread
    seeds: int
    missed: int = 0


def share(run: RunRecord, metric: Metric) -> float | None:
    """A run's accuracy, change of accuracy or weight on attackers, as a fraction of 1."""
    return {
        "converged": run.last_ten,
        "maximum": run.best,
        "final": run.final,
        "trend": run.trend,
        "mass": run.malicious_mass,
    }[metric]


def first_round(run: RunRecord, target: float) -> int | None:
    """The first round, counted from 1, whose test accuracy is at least ``target``."""
    return next((r.round for r in run.rounds if r.accuracy is not None and r.accuracy >= target), None)


def score(runs: Sequence[RunRecord], metric: Metric, target: float | None) -> Score | None:
    """Mean and sample standard deviation over seeds: percent, or rounds."""
    if metric == "rounds":
        if target is None or not runs:
            return None
        reached = [first_round(run, target) for run in runs]
        values = [float(run.rounds[-1].round if r is None else r) for run, r in zip(runs, reached, strict=True)]
        spread = Spread.of(values)
        return None if spread is None else Score(spread, len(runs), reached.count(None))
    found = [100 * a for run in runs if (a := share(run, metric)) is not None]
    spread = Spread.of(found)
    return None if spread is None else Score(spread, len(found))
