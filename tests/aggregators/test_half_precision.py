"""Every rule on rows stored in half precision: the answer of the same rows in float32, as a float32 model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from smartfl.flat import FlatSpec
from smartfl.registry import build, names
from smartfl.screening import collect, screen
from smartfl.types import Updates

SETTINGS = {
    "bucketing": {"rule": {"name": "median"}},
    "clipping": {"rule": {"name": "median"}},
    "nearest_neighbour_mixing": {"rule": {"name": "median"}, "f": 1},
    "reestimated": {"rule": {"name": "median"}},
    "momentum": {"rule": {"name": "median"}},
    "krum": {"f": 1},
    "multi_krum": {"f": 1},
    "bulyan": {"f": 1},
    "dnc": {"f": 1},
    "trimmed_mean": {"b": 1},
}


@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", names("aggregators"))
def test_a_rule_computes_in_float32_whatever_the_rows_are_stored_as(world, name, storage):
    w = world(batchnorm=True, clients=10)
    stored = w.updates.with_matrix(w.updates.matrix.to(storage))
    wide = stored.with_matrix(stored.matrix.to(torch.float32))
    results = []
    for updates in (stored, wide):
        rule = build("aggregators", name, SETTINGS.get(name, {}), "aggregator")
        server = w.server() if rule.needs_proxy != "unlabelled" else w.unlabelled()
        results.append(rule(updates, replace(server, num_clients=10)))
    half, full = results
    assert half.vector.dtype == torch.float32
    torch.testing.assert_close(half.vector, full.vector, rtol=1e-4, atol=1e-5)


def test_collect_stores_rows_at_half_the_size_and_keeps_the_origin_whole():
    """1 + 2⁻⁹ is no bfloat16 and rounds to 1; in the origin it stays."""
    value = 1 + 2**-9
    rows = {3: torch.tensor([value, 2.0]), 8: torch.tensor([4.0, 6.0])}
    updates = collect(rows, {3: 1, 8: 1}, torch.tensor([value, 0.0]), FlatSpec.plain(2), storage="bfloat16")
    assert updates.matrix.dtype == torch.bfloat16
    assert updates.matrix.tolist() == [[1, 2], [4, 6]]
    assert updates.origin.tolist() == [value, 0]
    assert updates.mix(torch.tensor([0.5, 0.5])).tolist() == [2.5, 4]


def test_what_float16_cannot_hold_is_refused_by_name():
    rows = {0: torch.tensor([1.0, 7e4]), 1: torch.tensor([1.0, 6e4])}
    updates = collect(rows, {0: 1, 1: 1}, torch.zeros(2), FlatSpec.plain(2), storage="float16")
    assert updates.ids == (1,)
    assert updates.dropped[0].reason == "value 1 of its model is inf"


def test_rows_whose_sum_overflows_in_half_precision_are_kept():
    assert screen(Updates.of(torch.full((2, 10), 6e4, dtype=torch.float16))).dropped == ()
