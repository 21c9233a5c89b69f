from __future__ import annotations

import pytest

from smartfl.errors import UserError
from smartfl.records.run import RunRecord
from smartfl.report.figure import curve, draw_curves


def test_curve_is_mean_and_deviation_by_round(make_run):
    """0.2 and 0.4 → 0.3 ± √(2 · 0.01) = 0.3 ± 0.1414; the second round exists for one seed only."""
    a = RunRecord.read(make_run("krum", seed=0, rounds=2, accuracies=[0.2, 0.6]))
    b = RunRecord.read(make_run("krum", seed=1, rounds=1, accuracies=[0.4]))
    (first, spread), (second, single) = curve([a, b], lambda run: [(r.round, r.accuracy) for r in run.rounds])
    assert (first, second) == (1, 2)
    assert (spread.mean, spread.std) == (pytest.approx(0.3), pytest.approx(0.02**0.5))
    assert (single.mean, single.std) == (0.6, None)


def test_png_and_svg(make_run, tmp_path):
    runs = [RunRecord.read(make_run(rule, seed=s, rounds=4)) for rule in ("krum", "smartfl", "median") for s in (0, 1)]
    assert draw_curves(runs, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    text = draw_curves(runs, tmp_path / "new" / "a.svg").read_text()
    for word in (
        "Krum",
        "SmartFL (calibrated)",
        "Median",
        "Test accuracy",
        "Weight given to attackers",
        "equal weights",
    ):
        assert word in text
    assert draw_curves(runs, tmp_path / "b.svg").read_text() == text, "the same runs give the same file"


def test_no_attack_no_second_panel(make_run, tmp_path):
    run = RunRecord.read(make_run(rounds=2, attack={"name": "none", "rate": 0.0}))
    assert "attackers" not in draw_curves([run], tmp_path / "a.svg").read_text()


def test_mistakes(make_run, tmp_path):
    with pytest.raises(UserError, match=r"must end in \.png, \.svg"):
        draw_curves([RunRecord.read(make_run())], tmp_path / "a.bmp")
    with pytest.raises(UserError, match="at least one run"):
        draw_curves([], tmp_path / "a.png")
