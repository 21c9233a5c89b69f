"""benchmarks/camps.py: who is held to contradict, by three rules."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def camps(script):
    return script("camps")


def test_uphill_by_hand(camps):
    """Cosines 0.4; −0.1 and 0.3; −0.2: means 0.4, 0.1, −0.2, their mean 0.1; sums with half of it 0.45, 0.25, −0.15."""
    assert camps.uphill([[0.4], [-0.1, 0.3], [-0.2]]) == [False, False, True]
    assert camps.uphill([[-0.4], [0.0]]) == [False, False]


def test_all_rules_of_the_same_rounds(camps):
    """Of text attackers 4 to 7 lead downhill a tenth as far as the others: a camp apart, and none of them uphill."""
    line = {
        "setting": "text, flips",
        "round": 1,
        "ids": list(range(8)),
        "malicious": [4, 5, 6, 7],
        "knowledge": [0.30, 0.31, 0.29, 0.30, 0.03, 0.02, 0.03, 0.04],
        "cosines": [0.05, 0.05, 0.05, -0.06, 0.005, 0.005, 0.005, 0.005],
    }
    accused, counts = camps.held([line, line])
    assert accused == [{4, 5, 6, 7}] * 2
    assert counts == {
        "honest by camps": (0, 4),
        "attackers by camps": (4, 4),
        "honest by camps of c": (0, 4),
        "attackers by camps of c": (0, 4),
        "honest by signs": (1, 4),
        "attackers by signs": (0, 4),
    }
    row = "| text, flips | 1 | 1 | 0 | 0 of 4 | 4 of 4 | 0 of 4 | 0 of 4 | 1 of 4 | 0 of 4 |"
    assert camps.table([line]).splitlines()[2] == row


def test_settings_are_experiments(camps):
    for name in camps.SETTINGS:
        assert camps.experiment(name).aggregator.name == "smartfl"


def test_drift_is_no_camp(camps):
    """Four clients of one round have 0.3, four of another 0.02: one camp, as rounds do not compare."""
    noise = [0.99, 1.01, 1.02, 0.98]
    first, second = (
        {
            "setting": "net",
            "ids": [4 * r + i for i in range(4)],
            "malicious": [],
            "knowledge": [k * e for e in noise],
            "cosines": [k * e for e in noise],
        }
        for r, k in ((0, 0.3), (1, 0.02))
    )
    _, counts = camps.held([first, second])
    assert counts["honest by camps"] == (0, 8)
    assert counts["honest by camps of c"] == (0, 8)
