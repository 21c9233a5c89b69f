"""Figures as files: what every drawing of ours shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smartfl.errors import UserError

FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path) -> None:
    """Refuse a file whose ending matplotlib would not know."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"figure file '{path.name}' must end in {', '.join(FORMATS)}")


@contextmanager
def drawing(font_size: float) -> Iterator[None]:
    """Matplotlib's settings while a figure is drawn: text stays text in SVG, and ids do not change between drawings."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise UserError('figures need matplotlib: pip install "smartfl[report]"') from error
    with rc_context({"font.size": font_size, "svg.fonttype": "none", "svg.hashsalt": "smartfl"}):
        yield


def save(figure: Any, path: Path, dpi: int) -> Path:
    """Write a matplotlib figure without the date, so that the same figure is the same file."""
    stamp = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi, facecolor="white", metadata=stamp)
    except OSError as error:
        raise UserError(f"figure '{path}' cannot be written: {error.strerror or error}") from error
    return path
