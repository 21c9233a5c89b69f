"""``smartfl records``: files of records as text, and run directories as such a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from smartfl.errors import UserError
from smartfl.records.naming import flatten, shown
from smartfl.records.run import RunRecord
from smartfl.records.store import find_runs, read_runs
from smartfl.records.study_file import ENDING, StoredRun, merge_study

app = typer.Typer(help="Records: all runs of a study in one compressed file.", no_args_is_help=True)


@app.command("show")
def show_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"a file of records (*{ENDING}), or a run directory")],
) -> None:
    """Print records as text, a line a setting and a line a round.

    As git's view of them:  git config diff.smartfl.textconv "smartfl records show"
    """
    for run in read_runs(file):
        for line in text_of(run):
            typer.echo(line)


@app.command("pack")
def pack_command(
    where: Annotated[list[Path], typer.Argument(metavar="DIR…", help="run directories, or directories above them")],
    to: Annotated[Path, typer.Option("-o", "--to", help=f"the file to add them to (*{ENDING})")],
    clients: Annotated[bool, typer.Option("--clients", help="keep every round's clients and their weights")] = False,
) -> None:
    """Add finished and unfinished runs to a file of records; of two with the same digest the longer one stays."""
    if not to.name.endswith(ENDING):
        raise UserError(f"--to = '{to}' must end in {ENDING}")
    if missing := [path for path in where if not path.exists()]:
        raise UserError(f"'{missing[0]}' does not exist")
    found = [StoredRun.of(each.run, clients) for each in find_runs(where)]
    added = merge_study(to, found)
    typer.echo(f"{to}: {len(added)} of {len(found)} runs added")


def text_of(run: RunRecord) -> Iterator[str]:
    """A run as lines that can be compared."""
    yield run.path.name
    for prefix, table in (("", run.experiment), ("environment.", run.environment)):
        yield from (f"  {prefix}{key} = {shown(value)}" for key, value in flatten(table))
    for record in run.rounds:
        line = record.round_line() | (record.coefficients_line() if record.ids else {})
        quantities = [f"{k} {_text(v)}" for k, v in flatten(line) if k != "round" and v not in (None, [], (), {})]
        yield f"  round {record.round}: {', '.join(quantities)}"


def _text(value: object) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list | tuple) else shown(value)
