"""benchmarks/detector.py: what attackers cost beyond being absent."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def detector(script):
    return script("detector")


def test_the_page_is_what_the_records_say(detector):
    page = detector.page([line for task in detector.TASKS for line in detector.lines(task)])
    assert page in detector.PAGE.read_text(encoding="utf-8"), "run benchmarks/detector.py"
    table, _ = page.split("\n\n")
    assert table in (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")


def test_a_line_by_hand(detector):
    """Digits at α = 1: SmartFL's three seeds under label flips and beside a detector, read off its records."""
    line = next(line for line in detector.lines(detector.TASKS[0]) if line.label.endswith("α = 1"))
    plan = detector.TASKS[0].plan()

    def mean(attack):
        column = next(c for c in plan.columns if [p.label for p in c] == ["alpha 1", attack])
        runs = [p.found.run for p in plan.cell("smartfl", column)]
        assert len(runs) == 3
        return sum(100 * sum(r.accuracy for r in run.rounds[10:20]) / 10 for run in runs) / 3

    assert line.detected["0.7"] == pytest.approx(mean("detected 0.7"))
    assert line.cells["flip", "0.7"].above == pytest.approx(mean("flip 0.7") - mean("detected 0.7"))


def test_what_is_said_of_all_cells(detector):
    """Above by 1, 1, 1, −2, 0.04 and 2 points: 0.5 on average; with a weight of 10 % or more the fourth and sixth."""
    keys = [(attack, rate) for rate in detector.RATES for attack in detector.ATTACKS]
    cells = dict(zip(keys, map(detector.Cell, [1, 1, 1, -2, 0.04, 2], [0, 1, 9.9, 30, 0, 10]), strict=True))
    page = detector.page([detector.Line("here", {"0.4": 50.0, "0.7": 40.0}, cells)])
    assert (
        "| here | +1.0 (0 %) | +1.0 (1 %) | +1.0 (10 %) | −2.0 (30 %) | 0.0 (0 %) | +2.0 (10 %) | 50.0 | 40.0 |" in page
    )
    assert "Over all 6 cells +0.5 points, between −2.0 and +2.0; below by more than 1.5 in 1." in page
    assert "Where attackers have a tenth of the weight or more, 2 cells 0.0 points, between −2.0 and +2.0." in page
