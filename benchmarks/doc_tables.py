"""Tables of the docs, made from the records.

    python benchmarks/doc_tables.py            # writes them anew
    python benchmarks/doc_tables.py --check    # exit status 1 if one is not what the records say

A table stands below a comment that says what it shows, in the options of ``smartfl table`` and a few more:

    <!-- table studies/method-mnist.toml --only uniform,smartfl --where data.alpha=0.01 --rounds 15 --seeds 3
         --results results/method-mnist --corner "α = 0.01" --weight smartfl -->

    | α = 0.01 | none | flip 0.4 |
    …

``--corner`` is its first cell, ``--label METHOD=TEXT`` another name of a method, ``--short LONG=TEXT`` of a part of
the columns' heads, ``--weight METHOD,…`` puts the weight on attackers below these methods.  Rows are in the order of
``--only``; the best of a column is bold, ties and all.  With ``--against METHOD`` a table has the points that the other
methods are above or below that one, "·" for less than two.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from smartfl.experiment.presets import read_study
from smartfl.reproduce.by_round import by_round
from smartfl.reproduce.commands import Request, select
from smartfl.reproduce.table import Comparison, Entry, compare

ROOT = Path(__file__).parents[1]
DOCS = ("README.md", "RESULTS.md", "docs/method.md", "docs/evidence.md", "docs/cifar.md")
MARKED = re.compile(r"<!-- table (?P<options>.*?)-->\n\n(?P<table>(?:\|[^\n]*\n)+)", re.DOTALL)
NOTHING = "–"
TELLING = 2.0  # points: of one seed, fewer may be chance


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="<!-- table", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--corner", default="")
    parser.add_argument("--metric")
    parser.add_argument("--at", default="")
    parser.add_argument("--only")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--weight", default="")
    parser.add_argument("--against")
    for option in ("--where", "--label", "--short", "--set"):
        parser.add_argument(option, action="append", default=[])
    return parser


def render(text: str) -> str:
    """The table that ``text``, the options of a comment, asks for."""
    asked = options().parse_args(shlex.split(text))
    study = read_study(str(ROOT / asked.name) if asked.name.endswith(".toml") else asked.name)
    selection = select(study, asked.only, asked.where, asked.seeds, asked.rounds, asked.set, None)
    plan = Request(study, selection, ROOT / "no runs", (ROOT / asked.results,)).plan()
    rounds = [int(number) for number in asked.at.split(",") if number]
    found, weights = by_round(plan, rounds) if rounds else compare(plan, asked.metric), compare(plan, "mass")
    labels = dict(label.split("=", 1) for label in asked.label)
    shared = sum(len({column[k].label for column in found.columns}) == 1 for k in range(len(found.axes) - 1))
    heads = [found.header(k, shared) for k in range(len(found.columns))]
    for long, short in (text.split("=", 1) for text in asked.short):
        heads = [head.replace(long, short) for head in heads]
    lines = [[asked.corner, *heads]]
    wanted = [row.method for row in found.rows] if asked.only is None else asked.only.split(",")
    rows = sorted(zip(found.rows, weights.rows, strict=True), key=lambda pair: wanted.index(pair[0].method))
    entries = {row.method: row.entries for row, _ in rows}
    for row, weight in rows:
        if asked.against:
            if row.method != asked.against:
                cells = map(difference, row.entries, entries[asked.against])
                lines.append([labels.get(row.method, row.label), *cells])
            continue
        best = [printed(entry) == winner(found, k) for k, entry in enumerate(row.entries)]
        cells = [f"**{cell}**" if b else cell for cell, b in zip(map(shown, row.entries), best, strict=True)]
        lines.append([labels.get(row.method, row.label), *cells])
        if row.method in asked.weight.split(","):
            lines.append(["*its weight on attackers, %*", *map(shown, weight.entries)])
    head, *body = (f"| {' | '.join(line)} |\n" for line in lines)
    return "".join([head, f"|---|{'---:|' * len(found.columns)}\n", *body])


def printed(entry: Entry) -> float | None:
    """The number as it is printed; runs that are not finished do not compare."""
    return None if entry.ours is None or entry.state == "in progress" else round(entry.ours.spread.mean, 1)


def winner(table: Comparison, column: int) -> float:
    """The best number of a column; none is the best of trends, or alone."""
    found = [p for row in table.rows if (p := printed(row.entries[column])) is not None]
    return max(found) if len(found) > 1 and table.metric != "trend" else float("nan")


def shown(entry: Entry) -> str:
    return NOTHING if printed(entry) is None else f"{printed(entry):.1f}".replace("-", "−")


def difference(entry: Entry, other: Entry) -> str:
    """How far ``entry`` is above or below ``other``, in points."""
    ours, theirs = printed(entry), printed(other)
    if ours is None or theirs is None:
        return NOTHING
    points = round(ours - theirs, 1)
    return "·" if abs(points) < TELLING else f"{points:+.1f}".replace("-", "−")


def renewed(page: str) -> str:
    """``page`` with every marked table as the records have it."""
    return MARKED.sub(lambda m: f"<!-- table {m['options']}-->\n\n{render(m['options'])}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name in DOCS:
        page = (ROOT / name).read_text()
        if (now := renewed(page)) != page:
            stale.append(name)
            if not check:
                (ROOT / name).write_text(now)
    if stale:
        print(f"{'stale' if check else 'written'}: {', '.join(stale)}")
    sys.exit(bool(stale) and check)


if __name__ == "__main__":
    main()
