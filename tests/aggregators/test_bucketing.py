"""Bucketing around other rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from smartfl.aggregators.bucketing import Bucketing
from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.aggregators.clipping import Clipping
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fltrust import FLTrust
from smartfl.aggregators.krum import Krum
from smartfl.aggregators.median import Median
from smartfl.aggregators.momentum import Momentum
from smartfl.aggregators.smartfl import SmartFL
from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.aggregators.uniform import Uniform
from smartfl.errors import UserError
from smartfl.registry import build
from smartfl.types import Server, Updates


def server(seed: int = 0) -> Server:
    return Server(generator=torch.Generator().manual_seed(seed))


ROWS = torch.randn(11, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_the_rule_sees_the_means_of_the_drawn_groups() -> None:
    """The permutation of seed 4 cut into threes, averaged by hand, median taken by NumPy."""
    order = torch.randperm(11, generator=torch.Generator().manual_seed(4)).tolist()
    means = np.stack([ROWS[order[i : i + 3]].numpy().mean(axis=0) for i in range(0, 11, 3)])
    result = Bucketing(Median(), size=3)(Updates.of(ROWS), server(4))
    np.testing.assert_allclose(result.vector.numpy(), np.median(means, axis=0), atol=1e-12)
    assert result.info["buckets"] == 4


@pytest.mark.parametrize("size", [2, 3])
def test_huge_rows_and_counts_of_one_bucket_do_not_add_up_to_inf(size: int) -> None:
    rows = torch.full((size, 2), 3e38)
    counts = torch.full((size,), 1.5e308, dtype=torch.float64)
    result = Bucketing(FedAvg(), size)(Updates.of(rows, counts), server())
    assert result.vector.tolist() == pytest.approx([3e38, 3e38])


@pytest.mark.parametrize("rule", [Krum(f=2), Median(), FedAvg(), TrimmedMean(fraction=0.2)])
def test_size_one_is_the_rule_itself(rule: Krum | Median | FedAvg | TrimmedMean) -> None:
    updates = Updates.of(ROWS, num_examples=torch.arange(11), ids=range(5, 16))
    plain, wrapped = rule(updates), Bucketing(rule, size=1)(updates, server())
    assert torch.equal(plain.vector, wrapped.vector)
    if plain.coefficients is None:
        assert wrapped.coefficients is None
    else:
        assert wrapped.coefficients is not None
        assert torch.equal(plain.coefficients, wrapped.coefficients)
    assert rule.tolerates(11) == Bucketing(rule, size=1).tolerates(11)


def test_coefficients_are_the_buckets_shared_by_its_clients() -> None:
    result = Bucketing(Krum(f=0), size=2)(Updates.of(ROWS), server())
    assert result.coefficients is not None
    chosen = torch.nonzero(result.coefficients).flatten()
    assert result.coefficients[chosen].tolist() == pytest.approx([1 / len(chosen)] * len(chosen))
    assert torch.allclose(result.coefficients @ ROWS, result.vector)


def test_uniform_over_full_buckets_is_the_uniform_mean() -> None:
    result = Bucketing(Uniform(), size=2)(Updates.of(ROWS[:10]), server())
    assert torch.allclose(result.vector, ROWS[:10].mean(dim=0))


def test_f_is_unchanged() -> None:
    """12 clients, fraction ¼: f = 3, of 6 buckets of 2 that is still 3, which a trimmed mean caps to 2, with an event.
    TrimmedMean on 6 rows with fraction ¼ taken literally would assume round(1.5) = 2 without a word.
    """
    updates = Updates.of(torch.arange(12.0)[:, None])
    result = Bucketing(TrimmedMean(fraction=0.25), size=2)(updates, server())
    assert result.info["b"] == 2
    assert result.events == ("b = 3 capped to 2 for 6 clients",)
    assert Bucketing(TrimmedMean(fraction=0.1), size=3).tolerates(30) == 3
    assert Bucketing(Clipping(TrimmedMean(fraction=0.1)), size=3).tolerates(30) == 3
    nested = Bucketing(Bucketing(TrimmedMean(fraction=1 / 12), size=2), size=2)  # one attacker in three buckets of four
    assert nested(updates, server()).info["b"] == nested.tolerates(12) == 1
    assert Bucketing(Krum(f=2), size=2).tolerates(14) == 2
    assert Bucketing(Krum(f=2), size=2).tolerates(10) == 1
    with pytest.raises(UserError, match="f = 2 is too large"):
        Bucketing(Krum(f=2), size=2)(Updates.of(ROWS[:10]), server())


def test_refused_clients_come_off_f_once() -> None:
    """13 clients, fraction 3/13 → 3 assumed, one row is NaN: 2 are left to fear among 12 clients in 6 buckets."""
    rows = torch.arange(13.0)[:, None].clone()
    rows[4] = torch.nan
    result = Bucketing(TrimmedMean(fraction=3 / 13), size=2)(Updates.of(rows), server())
    assert result.info["b"] == 2
    assert result.events == ()


def test_a_new_permutation_each_round_from_the_servers_generator() -> None:
    rule, stream = Bucketing(Median(), size=2), server(1)
    first, second = rule(Updates.of(ROWS), stream).vector, rule(Updates.of(ROWS), stream).vector
    assert not torch.equal(first, second)
    assert torch.equal(first, rule(Updates.of(ROWS), server(1)).vector)


def test_state_and_needs_are_the_inner_rules() -> None:
    inner = CenteredClipping(tau=1)
    wrapped = Bucketing(inner, size=2)
    wrapped(Updates.of(ROWS), server())
    assert wrapped.state_dict().keys() == {"v"}
    resumed = Bucketing(CenteredClipping(tau=1), size=2)
    resumed.load_state_dict(wrapped.state_dict())
    again = wrapped(Updates.of(ROWS), server()).vector, resumed(Updates.of(ROWS), server()).vector
    assert torch.equal(*again)
    assert wrapped.needs_proxy == "no"
    assert Bucketing(FLTrust()).needs_proxy == "labelled"
    assert wrapped.tolerates(10) is None


def test_what_is_inside_keeps_its_state_although_a_fraction_is_one_of_clients(world) -> None:
    """Rules of an experiment always have a fraction; those inside must be the same ones from round to round."""
    w = world()
    inside, outside = (Momentum(TrimmedMean(fraction=0.25)) for _ in range(2))
    rule = Bucketing(Momentum(Bucketing(inside)))
    assert Bucketing(outside, size=1)(w.updates, w.server()).info["momentum"] == 0
    assert outside.state_dict().keys() == {"step"}
    rule(w.updates, w.server())
    assert rule.state_dict().keys() == {"step", "rule.step"}
    assert torch.equal(rule.state_dict()["rule.step"], inside.state_dict()["step"])


def test_built_from_a_table() -> None:
    table = {"rule": {"name": "krum", "f": 1}, "size": 3}
    assert build("aggregators", "bucketing", table, "aggregator") == Bucketing(Krum(f=1), size=3)
    with pytest.raises(UserError, match=r"aggregator\.size"):
        build("aggregators", "bucketing", table | {"size": "many"}, "aggregator")
    with pytest.raises(UserError, match="size = 0"):
        build("aggregators", "bucketing", table | {"size": 0}, "aggregator")
    with pytest.raises(UserError, match=r"aggregator\.rule"):
        build("aggregators", "bucketing", {"rule": 3}, "aggregator")


def test_absent_clients_are_absent_buckets_and_buckets_are_not_absent_clients() -> None:
    """f = 1 needs 5 buckets of 2: ten clients; eight are too few unless ten were planned."""
    rule = Bucketing(Krum(f=1), size=2)
    updates = Updates.of(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    assert "capped to 0" in rule(replace(updates, planned=10)).events[0]
    with pytest.raises(UserError, match="f = 1 is too large for 4 clients"):
        rule(replace(updates, planned=8))


def test_smartfl_inside_has_no_memory_of_buckets():
    """A bucket's id is its first client's, who may be honest; a bucket of one is the client itself."""
    assert Bucketing(SmartFL(), size=2).rule == SmartFL(mistrust=0.0)
    assert Bucketing(SmartFL(mistrust=2.0), size=1).rule == SmartFL(mistrust=2.0)
    wrapped, without = (Momentum(Clipping(rule, threshold=1)) for rule in (SmartFL(), SmartFL(mistrust=0.0)))
    assert Bucketing(wrapped).rule == without
    assert Bucketing(wrapped, size=1).rule is wrapped
