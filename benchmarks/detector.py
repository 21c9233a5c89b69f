"""What attackers cost SmartFL beyond being absent: its accuracy beside a perfect detector's, from committed records.

    python benchmarks/detector.py            # writes results/detector/README.md

In the columns "detected" of studies/method-*.toml the attackers send NaN and are all refused (the attack ``crash``):
no detector can do better than to drop all of them and nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from cells import RESULTS, markdown, write_between

from smartfl.experiment.presets import read_study
from smartfl.experiment.study import Metric, Selection
from smartfl.reproduce.plan import Plan, plan
from smartfl.reproduce.table import compare

STUDIES = Path(__file__).parents[1] / "studies"
PAGE = RESULTS / "detector" / "README.md"
ATTACKS, RATES = ("flip", "omniscient", "Fang"), ("0.4", "0.7")


@dataclass(frozen=True)
class Task:
    """A study, and how much of it was run."""

    label: str
    study: str
    rounds: int
    seeds: int

    def plan(self) -> Plan:
        asked = Selection(only=("smartfl",), rounds=self.rounds, seeds=self.seeds)
        return plan(read_study(str(STUDIES / f"{self.study}.toml")), asked, RESULTS / "none", [RESULTS / self.study])


TASKS = (
    Task("digits, MLP", "method-digits", 20, 3),
    Task("20 Newsgroups, logistic regression", "method-news", 30, 3),
    Task("MNIST, ConvNet", "method-mnist", 15, 3),
    Task("CIFAR-10, ResNet-8", "method-cifar", 30, 1),
)


def signed(points: float) -> str:
    """One digit with its sign; what rounds to nothing has none."""
    return f"{points:+.1f}".replace("-", "−") if abs(points) >= 0.05 else "0.0"


@dataclass(frozen=True)
class Cell:
    """SmartFL under an attack: points above the perfect detector, and the attackers' weight in %."""

    above: float
    weight: float

    def text(self) -> str:
        return f"{signed(self.above)} ({self.weight:.0f} %)"


@dataclass(frozen=True)
class Line:
    """A task at one α: accuracy in % with all attackers removed, by rate, and what each attack makes of it."""

    label: str
    detected: dict[str, float]
    cells: dict[tuple[str, str], Cell]


def lines(task: Task) -> list[Line]:
    """A line for every α of a task; mean of the last ten evaluated rounds, over seeds."""
    of = task.plan()
    accuracy, weight = _means(of, "converged"), _means(of, "mass")
    found = []
    for alpha in dict.fromkeys(alpha for alpha, _ in accuracy):
        detected = {rate: accuracy[alpha, f"detected {rate}"] for rate in RATES}
        cells = {
            (attack, rate): Cell(
                accuracy[alpha, f"{attack} {rate}"] - detected[rate], weight[alpha, f"{attack} {rate}"]
            )
            for rate in RATES
            for attack in ATTACKS
        }
        found.append(Line(f"{task.label}, {alpha.replace('alpha', 'α =')}", detected, cells))
    return found


def _means(of: Plan, metric: Metric) -> dict[tuple[str, str], float]:
    """By α and attack, of the columns whose runs are all there."""
    table = compare(of, metric)
    entries = {(c[0].label, c[1].label): table.rows[0].entries[k] for k, c in enumerate(table.columns)}
    return {c: e.ours.spread.mean for c, e in entries.items() if e.ours is not None and e.state == "done"}


def page(found: list[Line]) -> str:
    """The table, and what there is to say of all its cells."""
    head = ["", *(f"{attack} {rate}" for rate in RATES for attack in ATTACKS), "detected 0.4", "detected 0.7"]
    rows = [
        [line.label, *(line.cells[a, r].text() for r in RATES for a in ATTACKS)]
        + [f"{line.detected[rate]:.1f}" for rate in RATES]
        for line in found
    ]
    every = [cell for line in found for cell in line.cells.values()]
    heavy = [cell for cell in every if cell.weight >= 10]
    said = f"Over all {_spread(every)}; below by more than 1.5 in {sum(cell.above < -1.5 for cell in every)}."
    return f"{markdown(head, rows)}\n\n{said} Where attackers have a tenth of the weight or more, {_spread(heavy)}."


def _spread(cells: list[Cell]) -> str:
    above = [cell.above for cell in cells]
    return f"{len(cells)} cells {signed(fmean(above))} points, between {signed(min(above))} and {signed(max(above))}"


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    write_between(PAGE, "Beside a perfect detector", page([line for task in TASKS for line in lines(task)]))


if __name__ == "__main__":
    main()
