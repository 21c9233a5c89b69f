"""What benchmarks/properties.py and assumption.py read off a run, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from smartfl.aggregators import FedAvg
from smartfl.flat import FlatSpec
from smartfl.records.round import RoundRecord
from smartfl.records.run import RunRecord
from smartfl.types import Proxy, Server, Updates


def run(*lines: dict[str, object]) -> RunRecord:
    rounds = tuple(RoundRecord.of({"round": t, **line}) for t, line in enumerate(lines, 1))
    return RunRecord(Path("run"), {}, {}, rounds, ())


def test_a_loss_that_falls_by_a_tenth_a_round(script):
    fit = script("properties").fit
    straight = run(*({"loss": 2 * 0.9**t} for t in range(1, 13)))
    assert fit(straight, 1, 10) == pytest.approx((0.9, 1))
    assert fit(straight, 11, 20) is None  # two points are no fit
    # ln L = 0, 1, 0 over rounds 1, 2, 3: no slope, and nothing of the spread is explained by one.
    assert fit(run({"loss": 1}, {"loss": math.e}, {"loss": 1}), 1, 10) == pytest.approx((1, 0))


def test_gap_and_misses(script):
    """Gaps of the last five of six rounds are 0.1 … 0.5, mean 0.3; the first would spoil it."""
    properties = script("properties")
    found = run({"loss": 9, "proxy_loss": 0}, *({"loss": 1 + k / 10, "proxy_loss": 1} for k in range(1, 6)))
    assert properties.gap(found) == pytest.approx(0.3)
    assert properties.gap(run({"loss": 1})) is None
    told = run(
        {"info": {"new_loss": 1.0, "best_client_loss": 1.5}}, {}, {"info": {"new_loss": 2, "best_client_loss": 1}}
    )
    assert properties.misses(told) == [-0.5, 1.0]
    assert properties.held([told]) == "1 of 2; by 1, at most 1"


def test_the_witness_by_hand(script):
    """One sample of class 0; clients' logits (2, 0) and (0, 2), the mean's (1, 1).
    L = ln(1 + e^(z_1 − z_0)): ln(1 + e^−2) = 0.1269 for the better client, ln 2 = 0.6931 for the mean."""
    model = nn.Linear(1, 2, bias=False)
    updates = Updates.of(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), origin=torch.zeros(2), spec=FlatSpec.of(model))
    server = Server(model=model, proxy=Proxy(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), 2))
    found = script("assumption").Witnessed(FedAvg())(updates, server)
    assert found.vector.tolist() == [1, 1]
    assert found.info["new_loss"] == pytest.approx(math.log(2))
    assert found.info["best_client_loss"] == pytest.approx(math.log(1 + math.exp(-2)))
