"""``smartfl data``: which datasets are there, where they are looked for, and how to get them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from smartfl.data.home import cache_home, data_home
from smartfl.errors import UserError

app = typer.Typer(help="Datasets: what is there, where, and how to get it.", no_args_is_help=True)

Directory = Annotated[Path | None, typer.Option("--dir", help="Look here instead of the data directory.")]


@app.command()
def status(directory: Directory = None) -> None:
    """List the datasets and where each was found."""
    from smartfl.data.fetch import NAMES

    rows = []
    for name in NAMES:
        if files := _found(name, directory):
            rows.append((name, "there", _place(files), f"{sum(file.stat().st_size for file in files) / 1e6:.1f}"))
        else:
            rows.append((name, "missing", f"smartfl data fetch {name}", ""))
    _print(("dataset", "status", "where, or how to get it", "MB"), rows)


@app.command()
def where(directory: Directory = None) -> None:
    """Show the data directory, the cache of decoded arrays and the environment variables that set them."""
    cache = cache_home(directory)
    rows = [
        ("data", str(data_home(directory)), "SMARTFL_DATA", "there" if data_home(directory).is_dir() else "absent"),
        ("cache", str(cache), "SMARTFL_CACHE", "there" if cache.is_dir() else "absent"),
    ]
    _print(("what", "directory", "set by", "status"), rows)


@app.command("show")
def show_command(
    experiment: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="the experiment")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a setting")] = None,
    out: Annotated[list[Path] | None, typer.Option("-o", "--out", help="a .png or .html to write; repeatable")] = None,
) -> None:
    """Show how an experiment's partition shares the classes among its clients."""
    from smartfl.data.statistics import histogram, show
    from smartfl.experiment.build import build_rule
    from smartfl.experiment.federation import build_federation
    from smartfl.experiment.files import read_experiment

    chosen = read_experiment(experiment, set_ or [])
    federation = build_federation(chosen, build_rule(chosen).needs_proxy)
    dataset, shards = federation.dataset, federation.shards
    counts = histogram(dataset.train_labels, [shards[i] for i in range(len(shards))], dataset.num_classes)
    data = chosen.data
    title = f"{data.dataset}, {data.clients} clients, {data.partition}, alpha {data.alpha:g}, seed {chosen.seed}"
    for path in show(counts, title, out or []):
        typer.echo(f"written: {path}")


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="A dataset that `smartfl data status` lists, or 'all'.")],
    directory: Directory = None,
    force: Annotated[bool, typer.Option("--force", help="Download even if the dataset is there.")] = False,
) -> None:
    """Download a dataset into the data directory; checksums decide whether it is kept."""
    from smartfl.data.fetch import NAMES, fetch
    from smartfl.data.progress import bar

    if name not in (*NAMES, "all"):
        raise UserError(f"NAME = {name!r}: accepted are {', '.join(NAMES)}, all")
    for each in NAMES if name == "all" else (name,):
        files = () if force else _found(each, directory)
        verb = "is there" if files else "fetched"
        files = files or fetch(each, directory, progress=bar)
        typer.echo(f"{each} {verb}: {_place(files)}")
        for file in set(_found(each, directory)) - set(files):
            typer.echo(f"{file} is read before what was fetched: remove it if it is wrong", err=True)


def _found(name: str, directory: Path | None) -> tuple[Path, ...]:
    from smartfl.data.fetch import locate

    try:
        return locate(name, directory)
    except UserError:
        return ()


def _place(files: Sequence[Path]) -> str:
    return str(files[0] if len(files) == 1 else files[0].parent)


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; tab-separated lines elsewhere, which other programs can read."""
    if not sys.stdout.isatty():
        for row in (header, *rows):
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
