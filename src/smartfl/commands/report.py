"""``smartfl report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from smartfl.errors import UserError
from smartfl.records.study_file import ENDING
from smartfl.reproduce.commands import Only, Request, Results, Rounds, Seeds, Settings, Tuned, Where, select, store_of

if TYPE_CHECKING:
    from smartfl.records.run import RunRecord


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_DIR|NAME",
            help="run directories, files of records, or a study: table1 …, figure1 …, or a .toml",
        ),
    ],
    to: Annotated[Path, typer.Option("-o", "--to", help="the HTML file to write")] = Path("report.html"),
    only: Only = None,
    where: Where = None,
    seeds: Seeds = None,
    rounds: Rounds = None,
    set_: Settings = None,
    tuned: Tuned = None,
    out: Annotated[Path | None, typer.Option(help="where a study's run directories are; default runs")] = None,
    results: Results = None,
) -> None:
    """Write a self-contained HTML report of finished or running runs, or of a study's records."""
    choice = {
        "--only": only, "--where": where, "--seeds": seeds, "--rounds": rounds, "--set": set_, "--tuned": tuned,
        "--out": out, "--results": results,
    }  # fmt: skip
    paths = [Path(each) for each in what]
    if len(paths) > 1 or paths[0].is_dir() or paths[0].name.endswith(ENDING):
        if given := [option for option, value in choice.items() if value is not None]:
            also = "; the HTML file is -o" if "--out" in given else ""
            raise UserError(f"{given[0]} chooses from a study, and {what[0]} is not one{also}")
        # A shell's ``runs/*`` also names the report of the last time.
        show(read([path for path in paths if path.name.endswith(ENDING) or not path.is_file()] or paths), to)
        return
    from smartfl.experiment.presets import read_study, shipped_study, study_names

    if not shipped_study(what[0]) and paths[0].suffix != ".toml":
        accepted = ", ".join(study_names())
        raise UserError(f"'{what[0]}' is neither a run directory nor a study; studies: {accepted}, or a .toml file")
    study = read_study(what[0])
    selection = select(study, only, where, seeds, rounds, set_, tuned)
    plan = Request(study, selection, out or Path("runs"), (store_of(results),)).plan()
    from smartfl.reproduce.study_runs import study_runs

    runs = study_runs(plan)
    if absent := sum(not planned.done for planned in plan.runs):
        print(f"not on record: {absent} of {len(plan.runs)} runs")
    show(runs, to, study.title)


def read(paths: Sequence[Path]) -> list[RunRecord]:
    """The runs of some run directories and files of records."""
    from smartfl.records.store import read_runs

    return [run for path in paths for run in read_runs(path)]


def show(runs: Sequence[RunRecord], to: Path, heading: str = "") -> None:
    """Print the summary of some runs, write their report to ``to``, and name that last."""
    from smartfl.report.html import write_report
    from smartfl.report.summary import summary_table

    console, table = Console(highlight=False), summary_table(runs)
    console.print(table.rich())
    for row in table.rows:
        if len(row.runs) > 1:
            each = ", ".join(f"{100 * run.final:.2f} (seed {run.seed})" for run in row.runs if run.final is not None)
            console.print(f"{row.method}: final {each}", markup=False)
    write_report(runs, to, heading)
    print(f"report: {to}")
