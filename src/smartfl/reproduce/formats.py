"""A comparison as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

from smartfl.errors import UserError
from smartfl.reproduce.table import Comparison, Row

Format = Literal["text", "markdown", "latex", "csv"]
Mark = Callable[[str], str]
COLUMNS = 6  # side by side on a page
CHARACTERS = 85  # on a terminal, beside 25 for the method


def render(table: Comparison, form: str) -> str:
    """The comparison in one of the formats, ending with a newline."""
    writers: dict[Format, Callable[[Comparison], str]] = {
        "text": as_text,
        "markdown": as_markdown,
        "latex": as_latex,
        "csv": as_csv,
    }
    if form not in writers:
        raise UserError(f"--format = {form!r}: accepted are {', '.join(get_args(Format))}")
    return writers[form](table)


def as_text(table: Comparison) -> str:
    """Aligned columns; the best of a column has a star."""

    def fits(titles: list[str]) -> bool:
        return sum(max(14, len(title)) + 2 for title in titles) <= CHARACTERS

    parts = [table.title, table.subtitle]
    for shared, places in table.blocks(fits):
        head = ["", "", *(table.header(k, shared) for k in places)]
        body = [head, *_lines(table, places, lambda text: f"*{text}")]
        widths = [max(len(line[k]) for line in body) for k in range(len(head))]
        parts += ["", shared] if shared else [""]
        parts += [
            "  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True)))
            for line in body
        ]
    return "\n".join(line.rstrip() for line in [*parts, *_notes(table)]) + "\n"


def as_markdown(table: Comparison) -> str:
    """GitHub tables; the best of a column is bold."""
    parts = [f"**{table.title}**", "", f"{table.subtitle[:1].upper()}{table.subtitle[1:]}."]
    for shared, places in table.blocks(lambda titles: len(titles) <= COLUMNS):
        head = [shared or "Method", "", *(table.header(k, shared) for k in places)]
        parts += ["", "| " + " | ".join(head) + " |", "|---|---|" + "---:|" * len(places)]
        parts += ["| " + " | ".join(line) + " |" for line in _lines(table, places, lambda text: f"**{text}**")]
    return "\n".join([*parts, *_notes(table)]) + "\n"


def as_latex(table: Comparison) -> str:
    """A booktabs table; the best of a column is bold."""
    parts = [r"\begin{table}", r"\centering", rf"\caption{{{_escape(table.title)}; {_escape(table.subtitle)}.}}"]
    for shared, places in table.blocks(lambda titles: len(titles) <= COLUMNS):
        head = [shared, "", *(table.header(k, shared) for k in places)]
        parts += [rf"\begin{{tabular}}{{ll{'r' * len(places)}}}", r"\toprule"]
        parts += [" & ".join(map(_escape, head)) + r" \\", r"\midrule"]
        body = _lines(table, places, lambda text: rf"\textbf{{{text}}}", _escape)
        parts += [" & ".join(line) + r" \\" for line in body]
        parts += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*parts, r"\end{table}"]) + "\n"


def as_csv(table: Comparison) -> str:
    """A line per method and column, numbers unrounded; an empty field is a number that does not exist."""
    out = io.StringIO()
    axes = [f"axis{k + 1}" for k in range(len(table.columns[0]))]
    numbers = ["paper_mean", "paper_std", "mean", "std", "seeds", "seeds_planned", "missed_target"]
    write = csv.writer(out, lineterminator="\n").writerow
    write(["study", "method", *axes, "metric", *numbers, "state", "best"])
    for row in table.rows:
        for k, (column, entry) in enumerate(zip(table.columns, row.entries, strict=True)):
            paper, ours = entry.paper, entry.ours
            write(
                [table.name, row.label, *(point.label for point in column), table.metric]
                + ([paper.mean, paper.std] if paper else ["", ""])
                + ([ours.spread.mean, ours.spread.std] if ours else ["", ""])
                + [*entry.finished, ours.missed if ours else "", entry.state, int(table.wins(row, k, "ours"))]
            )
    return out.getvalue()


def _lines(
    table: Comparison, places: Sequence[int], mark: Mark, escape: Mark = lambda text: text
) -> Iterator[list[str]]:
    """Two lines a method, the paper's (where it has numbers) and ours."""
    for row in table.rows:
        paper = any(row.entries[k].paper is not None for k in places)
        if paper:
            yield [escape(row.label), "paper", *_texts(table, row, places, "paper", mark, escape)]
        label = "" if paper else escape(row.label)
        yield [label, "ours", *_texts(table, row, places, "ours", mark, escape)]


def _texts(
    table: Comparison, row: Row, places: Sequence[int], source: Literal["paper", "ours"], mark: Mark, escape: Mark
) -> list[str]:
    texts = []
    for k in places:
        entry = row.entries[k]
        text = escape(entry.paper_text() if source == "paper" else entry.ours_text())
        texts.append(mark(text) if table.wins(row, k, source) else text)
    return texts


def _notes(table: Comparison) -> list[str]:
    """What the marks in the table mean, and what the study says about itself."""
    texts = " ".join(e.ours_text() for row in table.rows for e in row.entries)
    notes = []
    if "[" in texts:
        notes.append("[k/n]: k of n seeds finished.")
    if "@" in texts:
        notes.append("@k/n: in progress, after round k of n.")
    if "never" in texts:
        notes.append("≥: the seeds that never reach the target count with all their rounds.")
    if table.notes:
        notes.append(f"Note: {table.notes}.")
    return ["", *notes] if notes else []


def _escape(text: str) -> str:
    """LaTeX's special characters."""
    for plain, safe in (("%", r"\%"), ("_", r"\_"), ("&", r"\&"), ("±", r"$\pm$"), ("≥", r"$\geq$"), ("–", "--")):
        text = text.replace(plain, safe)
    return text.replace(" · ", ", ")
