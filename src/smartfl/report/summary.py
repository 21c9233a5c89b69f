"""The summary table: one row a method, mean ± sample standard deviation over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from smartfl.records.result import LAST
from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread
from smartfl.report.grouping import Group, group_runs

ABSENT = "–"


@dataclass(frozen=True)
class Column:
    """A column: its title, how a run's value is found, how it is written, and which end is better."""

    key: str
    title: str
    value: Callable[[RunRecord], float | None]
    higher_is_better: bool
    scale: float
    digits: int
    with_std: bool = True

    def printed(self, spread: Spread) -> float:
        return round(spread.mean * self.scale, self.digits)

    def text(self, spread: Spread | None) -> str:
        if spread is None:
            return ABSENT
        return (spread if self.with_std else Spread(spread.mean, None)).text(self.scale, self.digits)


COLUMNS = (
    Column("final", "Final %", lambda run: run.final, True, 100, 2),
    Column("best", "Best %", lambda run: run.best, True, 100, 2),
    Column("last_ten", f"Last {LAST} %", lambda run: run.last_ten, True, 100, 2),
    Column("malicious_mass", "Malicious weight %", lambda run: run.malicious_mass, False, 100, 1),
    Column("seconds", "s/round", lambda run: run.seconds_per_round, False, 1, 2, with_std=False),
)


@dataclass(frozen=True)
class SummaryRow:
    """A method's numbers in the order of ``COLUMNS``."""

    group: Group
    values: tuple[Spread | None, ...]

    @classmethod
    def of(cls, group: Group) -> SummaryRow:
        return cls(group, tuple(Spread.of(column.value(run) for run in group.runs) for column in COLUMNS))

    @property
    def method(self) -> str:
        return self.group.label

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        return self.group.runs

    @property
    def note(self) -> str:
        """How many seeds, and how far a run that is still going has come."""
        seeds = f"{len(self.runs)} seeds" if len(self.runs) > 1 else f"seed {self.runs[0].seed}"
        going = [run for run in self.runs if not run.finished]
        if not going:
            return seeds
        return f"{seeds}, in progress: round {min(len(r.rounds) for r in going)} of {going[0].planned_rounds}"


@dataclass(frozen=True)
class SummaryTable:
    """Rows in the order in which the methods were given."""

    rows: tuple[SummaryRow, ...]

    def is_best(self, row: SummaryRow, column: int) -> bool:
        """Whether a row holds the best value, as printed, of the finished methods that met the same scene.

        Where all are equal, none is best.
        """
        kind, mine = COLUMNS[column], row.values[column]
        if mine is None or not row.group.finished:
            return False
        rivals = [r for r in self.rows if r.group.finished and r.group.scene == row.group.scene]
        found = {kind.printed(spread) for r in rivals if (spread := r.values[column]) is not None}
        if len(found) < 2:
            return False
        return kind.printed(mine) == (max(found) if kind.higher_is_better else min(found))

    @property
    def legend(self) -> str:
        """What the mark of the best means in this table."""
        several = " among methods in the same setting" if len({row.group.scene for row in self.rows}) > 1 else ""
        going = "" if all(row.group.finished for row in self.rows) else "; a method in progress gets none"
        return f"the best of a column{several}{going}"

    def markdown(self) -> str:
        """A GitHub table, the best of each column in bold."""
        lines = [
            "| " + " | ".join(["Method", *(c.title for c in COLUMNS), "Runs"]) + " |",
            "|" + "|".join(["---", *("---:" for _ in COLUMNS), "---"]) + "|",
        ]
        for row in self.rows:
            cells = [
                f"**{column.text(spread)}**" if self.is_best(row, k) else column.text(spread)
                for k, (column, spread) in enumerate(zip(COLUMNS, row.values, strict=True))
            ]
            name = row.method.replace("\\", "\\\\").replace("|", "\\|")
            lines.append("| " + " | ".join([name, *cells, row.note]) + " |")
        return "\n".join(lines) + "\n"

    def rich(self) -> Table:
        """The same for a terminal of 80 columns, which has no room for one on seeds: those are told below."""
        table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
        table.add_column("Method", overflow="fold", min_width=12)
        for column in COLUMNS:
            table.add_column(column.title.replace(" weight", "\nweight"), justify="right", no_wrap=True)
        for row in self.rows:
            cells = [
                Text(column.text(spread), no_wrap=True, style="bold green" if self.is_best(row, k) else "")
                for k, (column, spread) in enumerate(zip(COLUMNS, row.values, strict=True))
            ]
            table.add_row(Text(row.method), *cells)
        table.caption = Text("\n".join(self._notes()), style="dim")
        return table

    def _notes(self) -> list[str]:
        """The rows' notes, each once with its methods; the commonest stands for all that are not named."""
        methods: dict[str, list[str]] = {}
        for row in self.rows:
            methods.setdefault(row.note, []).append(row.method)
        if len(methods) < 2:
            return list(methods)
        usual = max(methods, key=lambda note: len(methods[note]))
        others = [f"{', '.join(names)}: {note}" for note, names in methods.items() if note != usual]
        return [*others, f"{'all others' if len(methods[usual]) > 1 else methods[usual][0]}: {usual}"]


def summary_table(runs: Iterable[RunRecord]) -> SummaryTable:
    """One row a method; runs that differ only in their seed become mean ± sample standard deviation."""
    return SummaryTable(tuple(SummaryRow.of(group) for group in group_runs(runs)))
