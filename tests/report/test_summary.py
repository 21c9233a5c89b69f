from __future__ import annotations

import io

import pytest
from rich.console import Console

from smartfl.records.run import RunRecord
from smartfl.records.spread import Spread
from smartfl.report.summary import COLUMNS, summary_table

HONEST = {"name": "none", "rate": 0.0}


def cells(table, method):
    row = next(row for row in table.rows if row.method == method)
    return dict(zip([c.key for c in COLUMNS], row.values, strict=True))


def printed(runs):
    """The table on a terminal of 80 columns."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary_table(runs).rich())
    return console.export_text()


def cut(path, rounds):
    """A run that is still going: its first rounds only."""
    file = path / "rounds.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines()[:rounds]))
    return path


def stars(paths):
    """Who is best by final accuracy."""
    table = summary_table(map(RunRecord.read, paths))
    return [row.method for row in table.rows if table.is_best(row, 0)]


def test_mean_and_sample_deviation_over_seeds(make_run):
    """Finals 0.5, 0.6, 0.7: mean 0.6, variance (0.01 + 0 + 0.01) / 2, deviation 0.1. Bests 0.8 thrice: deviation 0."""
    runs = [RunRecord.read(make_run("fedavg", seed=s, rounds=2, accuracies=[0.8, 0.5 + 0.1 * s])) for s in range(3)]
    row = cells(summary_table(runs), "FedAvg")
    assert (row["final"].mean, row["final"].std) == (pytest.approx(0.6), pytest.approx(0.1))
    assert (row["best"].mean, row["best"].std) == (pytest.approx(0.8), pytest.approx(0, abs=1e-12))
    assert row["last_ten"].mean == pytest.approx(0.7)
    assert row["seconds"].mean == pytest.approx(0.55)


def test_one_seed_has_no_deviation(make_run):
    row = cells(summary_table([RunRecord.read(make_run("median", rounds=2, accuracies=[0.1, 0.2]))]), "Median")
    assert row["final"] == Spread(0.2, None)
    assert row["malicious_mass"] is None


def test_markdown_marks_the_best_and_escapes_names(make_run):
    good = make_run("krum", rounds=1, accuracies=[0.9], attack={})
    odd = make_run(folder="odd", rounds=1, accuracies=[0.5], aggregator={"name": "a|b"}, attack={})
    lines = summary_table([RunRecord.read(good), RunRecord.read(odd)]).markdown().splitlines()
    assert lines[0].startswith("| Method | Final % | Best % | Last 10 % | Malicious weight % | s/round |")
    assert "| **90.00** | **90.00** | **90.00** |" in lines[2]
    assert lines[3].startswith("| a\\|b")
    assert "| 50.00 | 50.00 | 50.00 | – | 0.55 |" in lines[3]
    assert "**0.55**" not in lines[2] + lines[3], "where all are equal, none is best"


def test_the_terminal_table_fits_80_columns_and_prints_names_as_they_are(make_run):
    runs = [
        RunRecord.read(
            make_run(folder=f"{rule}{s}", rounds=1, seed=s, accuracies=[0.3 + 0.3 * s], aggregator={"name": rule})
        )
        for rule in ("smartfl calibrated", "krum", "[red]x")
        for s in (0, 1)
    ]
    text = printed(runs)
    assert "[red]x" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("45.00 ± 21.21") == 9
    assert "…" not in text


def test_a_run_in_progress_says_so(make_run):
    path = cut(make_run("krum", rounds=5), 2)
    (row,) = summary_table([RunRecord.read(path)]).rows
    assert row.note == "seed 0, in progress: round 2 of 5"


def test_spread_text():
    assert Spread(0.5, 0.0123).text(100, 1) == "50.0 ± 1.2"
    assert Spread.of([None, None]) is None


def test_the_best_is_sought_among_methods_that_met_the_same_scene(make_run):
    """Without an attack FedAvg has 0.9: that is no reason why Krum's 0.6 under attack should lose its mark."""
    paths = [
        make_run("krum", rounds=1, accuracies=[0.6]),
        make_run("median", rounds=1, accuracies=[0.5]),
        make_run("fedavg", rounds=1, accuracies=[0.9], attack=HONEST),
    ]
    assert stars(paths) == ["Krum · label flip 0.4"]
    assert stars([paths[0], paths[2]]) == [], "neither has a rival"
    assert "same setting" in summary_table(map(RunRecord.read, paths)).legend
    assert "same setting" not in summary_table(map(RunRecord.read, paths[:2])).legend


def test_a_method_in_progress_is_never_the_best(make_run):
    """Krum leads at 0.9 with one round to go; of those that have finished Median is best, and FedAvg alone is not.

    Nor does one that stands where the best ended share its mark.
    """
    krum = cut(make_run("krum", rounds=2, accuracies=[0.9, 0.9]), 1)
    median, fedavg = (make_run(r, rounds=2, accuracies=[0.1, a]) for r, a in (("median", 0.6), ("fedavg", 0.5)))
    assert stars([krum, median, fedavg]) == ["Median"]
    assert stars([krum, fedavg]) == []
    level = cut(make_run("uniform", rounds=2, accuracies=[0.6, 0.6]), 1)
    assert stars([level, median, fedavg]) == ["Median"]
    assert "in progress" in summary_table(map(RunRecord.read, [krum, fedavg])).legend


def test_notes_that_differ_are_told_below_the_table(make_run):
    """Three seeds of one, one of two others, one of these still going: no column for it, nothing cut off."""
    three = [make_run("krum", seed=s, rounds=2) for s in range(3)]
    text = printed(map(RunRecord.read, [*three, make_run("fedavg", rounds=2), cut(make_run("median", rounds=2), 1)]))
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[-3:] == ["FedAvg: seed 0", "Median: seed 0, in progress: round 1 of 2", "Krum: 3 seeds"]
    more = [*three, make_run("uniform", rounds=2), make_run("fltrust", rounds=2)]
    assert printed(map(RunRecord.read, more)).splitlines()[-1].rstrip() == "all others: seed 0"
