"""What a partition looks like: the class histogram of every client, in numbers, as a picture and as a page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from smartfl.data.cache import Array
from smartfl.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

LISTED = 20


def histogram(labels: Tensor | Array, parts: Sequence[Tensor | Array | Sequence[int]], num_classes: int) -> Array:
    """(clients, classes) int64: how many samples of each class the positions in each part hold."""
    classes = np.asarray(labels)
    counts = [np.bincount(classes[np.asarray(part, dtype=np.int64)], minlength=num_classes) for part in parts]
    return np.stack(counts) if counts else np.zeros((0, num_classes), np.int64)


@dataclass(frozen=True)
class Description:
    """A partition in a few numbers.

    size_min, size_mean, size_max   samples per client, empty clients included
    empty                           the clients without a sample
    classes_mean                    classes per client, over clients that have samples
    largest_share_mean              share of a client's most frequent class, over the same clients
    """

    clients: int
    classes: int
    samples: int
    size_min: int
    size_mean: float
    size_max: int
    empty: tuple[int, ...]
    classes_mean: float
    largest_share_mean: float

    def rows(self) -> list[tuple[str, str]]:
        """Names and values for a table."""
        empty = ", ".join(map(str, self.empty[:LISTED])) + (" …" if len(self.empty) > LISTED else "")
        return [
            ("clients", str(self.clients)),
            ("samples", f"{self.samples:,}"),
            ("samples per client", f"min {self.size_min:,}, mean {self.size_mean:,.1f}, max {self.size_max:,}"),
            ("empty clients", f"{len(self.empty)} ({empty})" if self.empty else "0"),
            ("classes per client", f"mean {self.classes_mean:.2f} of {self.classes}"),
            ("share of the largest class", f"mean {self.largest_share_mean:.1%}"),
        ]


def describe(counts: Array) -> Description:
    """The summary of a (clients, classes) histogram."""
    sizes = counts.sum(axis=1)
    held = counts[sizes > 0]
    return Description(
        clients=len(counts),
        classes=counts.shape[1],
        samples=int(sizes.sum()),
        size_min=int(sizes.min()) if len(sizes) else 0,
        size_mean=float(sizes.mean()) if len(sizes) else 0.0,
        size_max=int(sizes.max(initial=0)),
        empty=tuple(int(i) for i in np.flatnonzero(sizes == 0)),
        classes_mean=float((held > 0).sum(axis=1).mean()) if len(held) else 0.0,
        largest_share_mean=float((held.max(axis=1) / held.sum(axis=1)).mean()) if len(held) else 0.0,
    )


def draw(counts: Array, path: Path, title: str = "") -> None:
    """A PNG: classes over clients, the darker the more samples; needs matplotlib (pip install 'smartfl[report]')."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise UserError(f"out = '{path}': a PNG needs matplotlib: pip install 'smartfl[report]'") from error
    clients, classes = counts.shape
    figure = Figure(figsize=(max(5.0, 2 + 0.12 * clients), max(3.0, 1.5 + 0.12 * classes)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(counts.T, aspect="auto", origin="lower", interpolation="nearest", cmap="Blues", vmin=0)
    axes.set(xlabel="client", ylabel="class", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=axes, label="samples")
    figure.savefig(path, dpi=150, format="png")


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body{{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222}} table{{border-collapse:collapse;margin:1em 0}}
.h td,.h th{{padding:1px 4px;text-align:right;font-size:11px;font-variant-numeric:tabular-nums}}
.s th{{text-align:left;padding-right:1em;font-weight:600}} .e th{{color:#b00020}}
</style></head><body><h1>{title}</h1><table class="s">{summary}</table>
<table class="h"><tr><th>client</th>{classes}<th>all</th></tr>{clients}</table></body></html>
"""


def page(counts: Array, title: str = "") -> str:
    """A self-contained HTML page: the summary and a shaded table, one row per client."""
    most = max(int(counts.max(initial=0)), 1)

    def cell(count: int) -> str:
        shade = f' style="background:rgba(31,119,180,{count / most:.2f})"' if count else ""
        return f"<td{shade}>{count or ''}</td>"

    summary = "".join(
        f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in describe(counts).rows()
    )
    clients = ""
    for i, row in enumerate(counts):
        cells = "".join(cell(int(n)) for n in row)
        clients += f"<tr{'' if row.any() else ' class=e'}><th>{i}</th>{cells}<th>{row.sum()}</th></tr>"
    return PAGE.format(
        title=html.escape(title or "Partition"),
        summary=summary,
        classes="".join(f"<th>{c}</th>" for c in range(counts.shape[1])),
        clients=clients,
    )


def show(counts: Array, title: str = "", out: Sequence[Path] = (), console: Console | None = None) -> list[Path]:
    """Print the summary and write the histogram to each path in ``out`` (.png, .html or .htm); the paths written."""
    from rich.console import Console
    from rich.table import Table

    writers: dict[str, Any] = {
        ".png": lambda path: draw(counts, path, title),
        ".html": lambda path: path.write_text(page(counts, title), encoding="utf-8"),
    }
    writers[".htm"] = writers[".html"]
    for path in out:
        if path.suffix.lower() not in writers:
            raise UserError(f"out = '{path}': accepted are names that end in .png or .html")
    table = Table(title=title or None, show_header=False)
    for name, value in describe(counts).rows():
        table.add_row(name, value)
    (console or Console()).print(table)
    for path in out:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[path.suffix.lower()](path)
        except OSError as error:
            raise UserError(f"out = '{path}' cannot be written: {error}") from error
    return list(out)
