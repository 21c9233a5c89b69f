"""benchmarks/doc_tables.py: what the docs show is what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smartfl.records.spread import Spread
from smartfl.reproduce.metrics import Score

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables(script):
    return script("doc_tables")


def test_every_marked_table_is_what_the_records_say(tables):
    for name in tables.DOCS:
        page = (ROOT / name).read_text()
        assert tables.renewed(page) == page, f"{name}: run benchmarks/doc_tables.py"


def test_no_table_of_a_study_goes_unread(tables):
    """A comment that the pattern does not match would never be checked."""
    for name in tables.DOCS:
        page = (ROOT / name).read_text()
        assert page.count("<!-- table ") == len(tables.MARKED.findall(page)), name


def test_a_number_that_is_not_on_record_is_replaced(tables):
    page = (ROOT / "docs/evidence.md").read_text()
    first = tables.MARKED.search(page)
    table = re.sub(r"\*\*\d+\.\d\*\*", "0.0", first["table"], count=1)
    spoilt = page[: first.start("table")] + table + page[first.end("table") :]
    assert spoilt != page
    assert tables.renewed(spoilt) == page


def test_a_table_by_hand(tables):
    """Two rules of one column; the better one is bold, and its weight on attackers stands below it."""
    text = """studies/method-digits.toml --only smartfl,uniform --where data.alpha=0.01 --where "attack=flip 0.4"
        --results results/method-digits --corner here --label "uniform=all alike" --short flip=F --weight smartfl"""
    head, line, smartfl, weight, uniform = tables.render(text).splitlines()
    assert (head, line) == ("| here | F 0.4 |", "|---|---:|")
    assert smartfl.startswith("| SmartFL | **8")
    assert weight.startswith("| *its weight on attackers, %* | ")
    assert uniform.startswith("| all alike | ")
    assert "**" not in uniform


def test_nothing_is_best_of_trends(tables):
    """A fall has a minus sign, not a hyphen, as in the text around the tables."""
    text = "studies/method-digits.toml --only uniform,smartfl --where data.alpha=0.01 --results results/method-digits"
    shown = "".join(lines_of(tables, f"{text} --metric trend"))
    assert "−" in shown
    assert "**" not in shown
    assert " -" not in shown


def test_a_table_of_differences(tables):
    """SmartFL is the 0 of the table and has no row; uniform averaging is far below it."""
    text = """studies/method-digits.toml --only uniform,smartfl,median --where data.alpha=0.01 --where "attack=flip 0.4"
        --results results/method-digits"""
    uniform, smartfl, _ = (float(row.strip("|* ").split("| ")[1].strip("*")) for row in lines_of(tables, text))
    found = lines_of(tables, f"{text} --against smartfl")
    assert found[0] == f"| Uniform | −{smartfl - uniform:.1f} |"
    assert [row.split(" | ")[0] for row in found] == ["| Uniform", "| Median"]


def lines_of(tables, text):
    return tables.render(text).splitlines()[2:]


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [(50.0, 52.04, "−2.0"), (52.1, 50.0, "+2.1"), (50.0, 51.94, "·"), (None, 50.0, "–"), (50.0, None, "–")],
)
def test_less_than_two_points_are_not_told_from_chance(tables, ours, theirs, shown):
    """Numbers as they are printed: 52.0 and 51.9."""
    assert tables.difference(*(entry(tables, mean) for mean in (ours, theirs))) == shown


def entry(tables, mean):
    ours = None if mean is None else Score(Spread(mean, None), seeds=1)
    return tables.Entry("done", None, ours, (1, 1), (1, 1), 1)
