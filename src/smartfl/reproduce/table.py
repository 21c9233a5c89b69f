"""The paper's table beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from smartfl.experiment.study import Metric, Point
from smartfl.records.spread import Spread
from smartfl.reproduce.metrics import ACCURACIES, LOWER_IS_BETTER, TITLES, Score, score
from smartfl.reproduce.paper import paper_result
from smartfl.reproduce.plan import Plan, Planned

SEPARATOR = " · "
BY_ROUND = "test accuracy in % after that round, or the last one before it that was evaluated"
State = Literal["done", "some seeds", "in progress", "not run", "does not apply"]


@dataclass(frozen=True)
class Entry:
    """A method in a column.

    ours       over the seeds that are finished; over those that are in progress where none is
    finished   how many seeds of how many
    rounds     done and planned, of the run that is furthest behind
    """

    state: State
    paper: Spread | None
    ours: Score | None
    finished: tuple[int, int]
    rounds: tuple[int, int]
    digits: int

    def paper_text(self) -> str:
        return "–" if self.paper is None else self.paper.text(digits=self.digits)

    def ours_text(self) -> str:
        """``52.96 ± 1.52``; fewer seeds than planned as ``[1/3]``; unfinished runs as ``@37/200``."""
        if self.ours is None:
            return "not run" if self.state == "not run" else "–"
        if self.ours.missed == self.ours.seeds:
            text = f"not in {self.rounds[1] if self.state != 'in progress' else self.rounds[0]}"
        elif self.ours.missed:
            text = f"≥ {self.ours.spread.text(digits=self.digits)} ({self.ours.missed} never)"
        else:
            text = self.ours.spread.text(digits=self.digits)
        if self.state == "in progress":
            return f"{text} @{self.rounds[0]}/{self.rounds[1]}"
        return text if self.state == "done" else f"{text} [{self.finished[0]}/{self.finished[1]}]"


@dataclass(frozen=True)
class Row:
    """A method."""

    method: str
    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Block:
    """Columns side by side; they have their ``depth`` leading axis points in common, which ``shared`` names."""

    shared: str
    depth: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """Rows of methods, columns of axis points.

    axes           what the points of a column are of
    metric         ours
    paper_metric   the study's
    by_round       whether the last axis is the round after which the run is looked at; a block for each other point
    """

    name: str
    title: str
    notes: str
    metric: Metric
    paper_metric: Metric
    axes: tuple[str, ...]
    columns: tuple[tuple[Point, ...], ...]
    rows: tuple[Row, ...]
    by_round: bool = False

    @property
    def subtitle(self) -> str:
        seeds = {e.finished[1] for row in self.rows for e in row.entries if e.finished[1]}
        over = f", mean ± sample std over {max(seeds)} seeds" if seeds and max(seeds) > 1 else ""
        text = f"ours: {BY_ROUND if self.by_round else TITLES[self.metric]}{over}"
        return text if self.metric == self.paper_metric else f"{text}; paper: {TITLES[self.paper_metric]}"

    def wins(self, row: Row, column: int, source: Literal["paper", "ours"]) -> bool:
        """Whether a row has the best value of a column as printed; of one value alone, or of trends, nothing is."""
        mine = _value(row.entries[column], source)
        found = [v for r in self.rows if (v := _value(r.entries[column], source)) is not None]
        if mine is None or len(found) < 2 or self.metric == "trend":
            return False
        return mine == (min if self.metric in LOWER_IS_BETTER else max)(found)

    def blocks(self, fits: Callable[[Block], bool], cut: bool = False) -> list[Block]:
        """Columns in groups that fit side by side, split along the leading axes.

        Where the last axis alone does not fit, it stays whole, or with ``cut`` is dealt out as evenly as can be.
        """
        deepest = max(0, len(self.columns[0]) - 1)
        for depth in range(deepest if self.by_round else 0, deepest + 1):
            groups: dict[str, list[int]] = {}
            for k, column in enumerate(self.columns):
                groups.setdefault(SEPARATOR.join(p.label for p in column[:depth]), []).append(k)
            found = [Block(shared, depth, tuple(members)) for shared, members in groups.items()]
            if all(map(fits, found)):
                return found
        return [part for block in found for part in _parts(block, fits)] if cut else found

    def header(self, column: int, depth: int) -> str:
        """What a column's title says beyond its block's."""
        return SEPARATOR.join(point.label for point in self.columns[column][depth:]) or "all"


def compare(plan: Plan, metric: Metric | None = None) -> Comparison:
    """The paper's numbers beside those of the runs that exist."""
    study = plan.study
    chosen = metric or study.metric
    rows = tuple(
        Row(method, study.methods[method].label, tuple(_entry(plan, method, c, chosen) for c in plan.columns))
        for method in plan.methods
    )
    return Comparison(study.name, study.title, study.notes, chosen, study.metric, tuple(study.axes), plan.columns, rows)


def _entry(plan: Plan, method: str, column: tuple[Point, ...], metric: Metric) -> Entry:
    runs = plan.cell(method, column)
    digits = 1 if metric == "rounds" else 2
    if not runs or (metric == "mass" and runs[0].experiment.attack.rate == 0):
        return Entry("does not apply", None, None, (0, 0), (0, 0), digits)
    study, target = plan.study, runs[0].trial.target
    name = study.methods[method].paper
    # Rounds and accuracies do not compare: of another kind of metric the paper says nothing.
    comparable = metric == study.metric or {metric, study.metric} <= ACCURACIES
    paper = paper_result(study.paper, name, runs[0].experiment) if study.paper and name and comparable else None
    finished = [p for p in runs if p.finished]
    begun = finished or [p for p in runs if p.done]
    state: State = "not run"
    if finished:
        state = "done" if len(finished) == len(runs) else "some seeds"
    elif begun:
        state = "in progress"
    found = score([p.found.run for p in begun if p.found is not None], metric, target)
    rounds = min((p.done for p in begun), default=0), runs[0].experiment.rounds
    if found is None and begun and metric in ("mass", "trend"):
        state = "does not apply"  # the median has no weights; fewer than ten evaluations have no trend
    return Entry(
        state if found or state == "does not apply" else "not run",
        paper,
        found,
        (len(finished), len(runs)),
        rounds,
        digits,
    )


def _parts(block: Block, fits: Callable[[Block], bool]) -> list[Block]:
    """The block in as few parts as fit, of one column each if nothing does."""
    size = len(block.places)
    for count in range(1, size + 1):
        ends = [size * k // count for k in range(count + 1)]
        parts = [replace(block, places=block.places[a:b]) for a, b in pairwise(ends)]
        if all(map(fits, parts)):
            break
    return parts


def _value(entry: Entry, source: Literal["paper", "ours"]) -> float | None:
    if source == "paper":
        return None if entry.paper is None else round(entry.paper.mean, entry.digits)
    if entry.ours is None or entry.ours.missed or entry.state == "in progress":
        return None
    return round(entry.ours.spread.mean, entry.digits)


def counts(runs: Iterable[Planned]) -> tuple[int, int, int]:
    """Runs that are finished, begun, and all."""
    every = list(runs)
    finished = sum(p.finished for p in every)
    return finished, sum(p.done > 0 for p in every) - finished, len(every)
