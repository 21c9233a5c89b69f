from __future__ import annotations

import pytest
from rich.console import Console

from smartfl.report.run_data import RunData
from smartfl.report.spread import Spread
from smartfl.report.summary import COLUMNS, summary_table


def cells(table, method):
    row = next(row for row in table.rows if row.method == method)
    return dict(zip([c.key for c in COLUMNS], row.values, strict=True))


def test_mean_and_sample_deviation_over_seeds(make_run):
    """Finals 0.5, 0.6, 0.7: mean 0.6, variance (0.01 + 0 + 0.01) / 2, deviation 0.1. Bests 0.8 thrice: deviation 0."""
    runs = [RunData.read(make_run("fedavg", seed=s, rounds=2, accuracies=[0.8, 0.5 + 0.1 * s])) for s in range(3)]
    row = cells(summary_table(runs), "FedAvg")
    assert (row["final"].mean, row["final"].std) == (pytest.approx(0.6), pytest.approx(0.1))
    assert (row["best"].mean, row["best"].std) == (pytest.approx(0.8), pytest.approx(0, abs=1e-12))
    assert row["last_ten"].mean == pytest.approx(0.7)
    assert row["seconds"].mean == pytest.approx(0.55)


def test_one_seed_has_no_deviation(make_run):
    row = cells(summary_table([RunData.read(make_run("median", rounds=2, accuracies=[0.1, 0.2]))]), "Median")
    assert row["final"] == Spread(0.2, None)
    assert row["malicious_mass"] is None


def test_markdown_marks_the_best_and_escapes_names(make_run):
    good = make_run("krum", rounds=1, accuracies=[0.9])
    odd = make_run(folder="odd", rounds=1, accuracies=[0.5], aggregator={"name": "a|b"}, attack={})
    lines = summary_table([RunData.read(good), RunData.read(odd)]).markdown().splitlines()
    assert lines[0].startswith("| Method | Final % | Best % | Last 10 % | Malicious weight % | s/round |")
    assert "| **90.00** | **90.00** | **90.00** |" in lines[2]
    assert lines[3].startswith("| a\\|b")
    assert "| 50.00 | 50.00 | 50.00 | – | 0.55 |" in lines[3]
    assert "**0.55**" not in lines[2] + lines[3], "where all are equal, none is best"


def test_the_terminal_table_fits_80_columns_and_prints_names_as_they_are(make_run):
    runs = [
        RunData.read(
            make_run(folder=f"{rule}{s}", rounds=1, seed=s, accuracies=[0.3 + 0.3 * s], aggregator={"name": rule})
        )
        for rule in ("smartfl calibrated", "krum", "[red]x")
        for s in (0, 1)
    ]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary_table(runs).rich())
    text = console.export_text()
    assert "[red]x" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("45.00 ± 21.21") == 9
    assert "…" not in text


def test_a_run_in_progress_says_so(make_run):
    path = make_run("krum", rounds=5)
    file = path / "rounds.jsonl"
    file.write_text("\n".join(file.read_text().splitlines()[:2]))
    (row,) = summary_table([RunData.read(path)]).rows
    assert row.note == "seed 0, in progress: round 2 of 5"


def test_spread_text():
    assert Spread(0.5, 0.0123).text(100, 1) == "50.0 ± 1.2"
    assert Spread.of([None, None]) is None
