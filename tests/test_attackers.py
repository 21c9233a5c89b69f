"""One rounding for all who count attackers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import smartfl
from smartfl.aggregators import Krum
from smartfl.aggregators.assumption import assumed
from smartfl.attackers import count_attackers
from smartfl.simulation import Simulation


@pytest.mark.parametrize(("rate", "clients", "count"), [(0.2, 80, 16), (0.29, 100, 29), (0.4, 4, 2), (0.4, 3, 1)])
def test_the_number_nearest_to_the_product(rate, clients, count):
    assert count_attackers(rate, clients) == count
    assert assumed(None, rate, clients, clients) == count


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.4])
def test_who_is_compromised_who_lies_and_what_a_rule_assumes_agree(tiny, rate):
    """16 clients, all of them in every round: 3.2, 4.8 and 6.4."""
    changes = {"data": {"clients": 16}, "client": {"participation": 1.0}, "aggregator": {"name": "krum"}}
    found = set()
    for who in ("fixed", "per_round"):
        attack = {"name": "omniscient", "rate": rate, "who": who}
        simulation = Simulation(tiny(**changes, attack=attack, rounds=1), executor="serial")
        (record,) = simulation
        rule = simulation.rules[0]
        assert isinstance(rule, Krum)
        found |= {len(record.malicious), int(record.info["f"])}
    assert found == {count_attackers(rate, 16)}


def test_nobody_else_rounds_a_rate():
    """No other module multiplies a rate or a fraction of attackers with a number of clients inside a rounding."""
    for file in Path(smartfl.__file__).parent.rglob("*.py"):
        if file.name in ("attackers.py", "backdoor.py"):  # a backdoor's fraction is of a client's samples
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("round", "math.floor", "math.ceil", "int"):
                assert not any(
                    word in ast.unparse(node) for word in ("rate *", "* rate", "fraction or", "fraction *")
                ), file
