"""Updates from plain arrays, and the values derived from them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.krum import Krum
from smartfl.flat import FlatSpec
from smartfl.types import Aggregate, Dropped, Rule, Updates

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize(
    ("matrix", "dtype"),
    [
        (torch.tensor(ROWS), torch.float32),
        (torch.tensor(ROWS, dtype=torch.float64), torch.float64),
        (np.array(ROWS), torch.float64),
        (np.array(ROWS, dtype=np.float32), torch.float32),
        (np.array(ROWS, dtype=np.int64), torch.float32),
        (ROWS, torch.float32),
        ([[1, 2], [3, 4], [5, 6]], torch.float32),
    ],
)
def test_of_takes_torch_numpy_and_lists(matrix, dtype):
    updates = Updates.of(matrix)
    assert updates.matrix.tolist() == ROWS
    assert updates.matrix.dtype == updates.origin.dtype == dtype
    assert updates.ids == (0, 1, 2)
    assert updates.num_examples.tolist() == [1, 1, 1]
    assert updates.num_steps.tolist() == [1, 1, 1]
    assert updates.origin.tolist() == [0, 0]
    assert updates.dropped is None


def test_krum_works_on_a_plain_array():
    """Rows 0, 1, 2, 3, 100 and f = 1: k = 2 neighbours each; scores 5, 2, 2, 5, …, and the smaller id wins."""
    x = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    assert Krum(f=1)(Updates.of(x)).vector.tolist() == [1]


def test_rows_are_sorted_by_id_with_all_that_belongs_to_them():
    updates = Updates.of(ROWS, [10, 20, 30], ids=[7, 3, 5], num_steps=[1, 2, 3])
    assert updates.ids == (3, 5, 7)
    assert updates.matrix.tolist() == [ROWS[1], ROWS[2], ROWS[0]]
    assert updates.num_examples.tolist() == [20, 30, 10]
    assert updates.num_steps.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"matrix": [1.0, 2.0]}, r"\(n, d\) matrix"),
        ({"matrix": torch.zeros(1, 2, 3)}, r"\(n, d\) matrix"),
        ({"matrix": ROWS, "num_examples": [1, 2]}, "num_examples"),
        ({"matrix": ROWS, "num_examples": [1, 2, 3, 4], "ids": [2, 1, 0]}, "num_examples"),
        ({"matrix": ROWS, "num_steps": [1]}, "num_steps"),
        ({"matrix": ROWS, "origin": [0.0]}, "origin"),
        ({"matrix": ROWS, "ids": [1, 2]}, "ids"),
        ({"matrix": ROWS, "ids": [1, 2, 3, 4]}, "ids"),
        ({"matrix": ROWS, "ids": [1, 1, 2]}, "distinct"),
        ({"matrix": ROWS, "spec": FlatSpec.plain(3)}, "matrix must be"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Updates.of(**arguments)


def test_weights_are_shares_of_the_reported_counts():
    assert Updates.of(ROWS, [1, 0, 3]).weights.tolist() == [0.25, 0, 0.75]


def test_weights_are_uniform_when_nobody_reports_a_sample():
    weights = Updates.of(ROWS, [0, 0, 0]).weights
    assert weights.dtype == torch.float64
    assert weights.tolist() == pytest.approx([1 / 3] * 3)


def test_fedavg_example_of_the_specification():
    """3.1: w = (0, 3), N = (1, 2) → 2, which is also w^t + Σ α_i Δ_i for any w^t."""
    updates = Updates.of([[0.0], [3.0]], [1, 2], origin=[5.0])
    assert FedAvg()(updates).vector.tolist() == pytest.approx([2])
    identity = updates.origin + updates.weights.to(torch.float32) @ updates.deltas
    assert identity.tolist() == pytest.approx([2])


def test_distances_see_parameters_only():
    spec = FlatSpec.of(nn.BatchNorm1d(1))
    updates = Updates.of([[1.0, 2.0, 3.0, 4.0]], origin=[1.0, 1.0, 1.0, 1.0], spec=spec)
    assert updates.parameters.tolist() == [[1, 2]]
    assert updates.deltas.tolist() == [[0, 1]]


def test_mix_select_and_with_matrix():
    updates = Updates.of(ROWS, [1, 2, 3], ids=[4, 5, 6])
    assert updates.mix(torch.tensor([0.5, 0.0, 0.5])).tolist() == [3, 4]
    some = updates.select([0, 2])
    assert (some.ids, some.num_examples.tolist(), some.matrix.tolist()) == ((4, 6), [1, 3], [ROWS[0], ROWS[2]])
    assert updates.with_matrix(torch.zeros(3, 2)).matrix.sum() == 0
    assert len(updates.select([])) == 0


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Updates.of(ROWS).ids = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Aggregate(torch.zeros(1)).vector = torch.ones(1)


def test_an_aggregator_is_a_rule():
    assert isinstance(Krum(), Rule)
    assert not isinstance(object(), Rule)


def test_absurd_counts_are_still_shares():
    """The sum 2e308 is beyond float64, the counts are not."""
    counts = torch.tensor([1e308, 0.5e308, 0.5e308], dtype=torch.float64)
    assert Updates.of(torch.eye(3), counts).weights.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("planned", "dropped", "short"), [(None, (), False), (2, (), False), (3, (), True)])
def test_updates_are_short_when_clients_are_missing(planned, dropped, short):
    updates = Updates.of(torch.eye(2))
    assert replace(updates, planned=planned, dropped=dropped).short is short
    assert replace(updates, planned=planned, dropped=(Dropped(7, "NaN"),)).short


def test_neighbouring_rows_are_selected_without_a_copy():
    updates = Updates.of(torch.tensor(ROWS), [1, 2, 3], ids=[4, 6, 8])
    tail, ends = updates.select([1, 2]), updates.select([0, 2])
    assert (tail.ids, tail.matrix.tolist(), tail.num_examples.tolist()) == ((6, 8), ROWS[1:], [2, 3])
    assert tail.matrix.data_ptr() == updates.matrix[1].data_ptr()
    assert (ends.ids, ends.matrix.tolist()) == ((4, 8), [ROWS[0], ROWS[2]])
    assert len(updates.select([])) == 0
