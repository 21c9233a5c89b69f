"""A comparison as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from shutil import get_terminal_size
from typing import Literal, get_args

from smartfl.errors import UserError
from smartfl.reproduce.table import SEPARATOR, Block, Comparison, Row

Format = Literal["text", "markdown", "latex", "csv"]
Mark = Callable[[str], str]
COLUMNS = 6  # side by side in Markdown
PAGE = 80  # characters of a line in a paper, in \small
SCREEN = 100  # where there is no terminal
LATEX = str.maketrans(
    {c: rf"\{c}" for c in "#$%&_{}"}
    | {c: f"${c}$" for c in "<>|"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "–": "--", "…": r"\dots{}"}
    | {"α": r"$\alpha$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "×": r"$\times$", "·": r"$\cdot$", "−": "$-$"}
)


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
    """Aligned columns, no wider than the terminal; the best of a column has a star."""
    limit = get_terminal_size((SCREEN, 24)).columns

    def star(text: str) -> str:
        return f"*{text}"

    parts = [table.title, table.subtitle]
    for block in table.blocks(lambda block: _width(table, block, star) <= limit, cut=True):
        body = [_head(table, block), *_lines(table, block.places, star)]
        widths = [max(map(len, cells)) for cells in zip(*body, strict=True)]
        parts += ["", block.shared] if block.shared else [""]
        parts += [
            "  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True)))
            for line in body
        ]
    return "\n".join(line.rstrip() for line in [*parts, *_below(_notes(table))]) + "\n"


def as_markdown(table: Comparison) -> str:
    """GitHub tables; the best of a column is bold."""
    parts = [f"**{table.title}**", "", f"{table.subtitle[:1].upper()}{table.subtitle[1:]}."]
    for block in table.blocks(lambda block: len(block.places) <= COLUMNS):
        head = _head(table, block, block.shared or "Method")
        parts += ["", "| " + " | ".join(head) + " |", "|---|---|" + "---:|" * len(block.places)]
        parts += ["| " + " | ".join(line) + " |" for line in _lines(table, block.places, lambda text: f"**{text}**")]
    return "\n".join([*parts, *_below(_notes(table))]) + "\n"


def as_latex(table: Comparison) -> str:
    """A booktabs table per block, each with all it needs: a float of many blocks would not fit a page."""
    parts = [r"% needs \usepackage{booktabs}"]
    blocks = table.blocks(lambda block: _width(table, block, str) <= PAGE, cut=True)
    for number, block in enumerate(blocks, 1):
        caption = "; ".join(filter(None, [table.title, block.shared, table.subtitle]))
        label = f"tab:{table.name}" + (f"-{number}" if len(blocks) > 1 else "")
        parts += [r"\begin{table}", r"\centering", r"\small"]
        parts += [rf"\caption{{{_escape(caption)}.}}", rf"\label{{{label}}}"]
        parts += [rf"\begin{{tabular}}{{ll{'r' * len(block.places)}}}", r"\toprule"]
        parts += [" & ".join(map(_escape, _head(table, block, "Method"))) + r" \\", r"\midrule"]
        body = _lines(table, block.places, lambda text: rf"\textbf{{{text}}}", _escape)
        parts += [" & ".join(line) + r" \\" for line in body]
        parts += [r"\bottomrule", r"\end{tabular}"]
        if notes := _notes(table, block.places):
            parts += [r"\par\smallskip", *(rf"{{\footnotesize {_escape(note)}\par}}" for note in notes)]
        parts += [r"\end{table}", ""]
    return "\n".join(parts[:-1]) + "\n"


def as_csv(table: Comparison) -> str:
    """A line per method and column, numbers unrounded; an empty field is a number that does not exist."""
    out = io.StringIO()
    numbers = ["paper_mean", "paper_std", "mean", "std", "seeds", "seeds_planned", "missed_target"]
    write = csv.writer(out, lineterminator="\n").writerow
    more = ["method_key", "rounds_done", "rounds_planned", "paper_best"]  # at the end: scripts may count columns
    write(["study", "method", *table.axes, "metric", *numbers, "state", "best", *more])
    for row in table.rows:
        for k, (column, entry) in enumerate(zip(table.columns, row.entries, strict=True)):
            paper, ours = entry.paper, entry.ours
            write(
                [table.name, row.label, *(point.label for point in column), table.metric]
                + ([paper.mean, paper.std] if paper else ["", ""])
                + ([ours.spread.mean, ours.spread.std] if ours else ["", ""])
                + [*entry.finished, ours.missed if ours else "", entry.state, int(table.wins(row, k, "ours"))]
                + [row.method, *(entry.rounds if entry.rounds[1] else ("", "")), int(table.wins(row, k, "paper"))]
            )
    return out.getvalue()


def _head(table: Comparison, block: Block, corner: str = "") -> list[str]:
    """The columns' titles, after those of the method and of the source."""
    return [corner, "round" if table.by_round else "", *(table.header(k, block.depth) for k in block.places)]


def _width(table: Comparison, block: Block, mark: Mark) -> int:
    """Characters of the longest line, two between columns."""
    body = [_head(table, block), *_lines(table, block.places, mark)]
    return sum(max(map(len, cells)) + 2 for cells in zip(*body, strict=True)) - 2


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


def _notes(table: Comparison, places: Sequence[int] | None = None) -> list[str]:
    """What the marks in these columns (default: all) mean, and what the study says about itself."""
    shown = [row.entries[k] for row in table.rows for k in (range(len(table.columns)) if places is None else places)]
    texts = " ".join(entry.ours_text() for entry in shown)
    notes = []
    if "[" in texts:
        notes.append(f"[k/n]: k of n seeds {'have done that round' if table.by_round else 'finished'}.")
    if "@" in texts:
        notes.append("@k/n: in progress, after round k of n.")
    if table.by_round and any(entry.state == "in progress" for entry in shown):
        notes.append("–: not there yet.")
    if "never" in texts:
        notes.append("≥: the seeds that never reach the target count with all their rounds.")
    if table.notes:
        notes.append(f"Note: {table.notes}.")
    return notes


def _below(notes: list[str]) -> list[str]:
    """The notes after an empty line."""
    return ["", *notes] if notes else []


def _escape(text: str) -> str:
    """LaTeX's special characters; a row that begins with [ or * would be read as an option of the line above."""
    safe = text.replace(SEPARATOR, ", ").translate(LATEX)
    return f"{{}}{safe}" if safe.startswith(("[", "*")) else safe
