"""``smartfl flower``: a new Flower app."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from smartfl.errors import UserError

app = typer.Typer(name="flower", help="Flower apps that use smartfl.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _general() -> None:
    """Flower apps that use smartfl."""


@app.command()
def new(directory: Annotated[Path, typer.Argument(metavar="DIR", help="an empty or new directory")]) -> None:
    """Write a small Flower app into DIR: SmartFL on handwritten digits, for simulation and deployment."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"DIR = '{directory}' is there already and not empty: name a new directory")
    name = re.sub(r"[^a-z0-9-]+", "-", directory.resolve().name.lower()).strip("-") or "digits"
    try:
        _copy(files("smartfl.flower") / "template", directory, name)
    except OSError as error:
        raise UserError(f"DIR = '{directory}' cannot be written: {error.strerror or error}") from error
    print(f"cd {directory} && flwr run . --stream")
    print(directory)


def _copy(source: Traversable, target: Path, name: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            _copy(entry, target / entry.name, name)
        elif entry.is_file():
            text = entry.read_text(encoding="utf-8").replace("NAME", name)
            (target / entry.name).write_text(text, encoding="utf-8")
