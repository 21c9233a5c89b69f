"""ALGORITHMS.md 0.4: who is refused before any rule runs, and what becomes of the weights."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.median import Median
from smartfl.aggregators.uniform import Uniform
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.registry import build
from smartfl.screening import collect, screen, screened
from smartfl.types import Aggregate, Dropped, Server, Updates

NAN, INF = float("nan"), float("inf")
BATCHNORM = FlatSpec.of(nn.BatchNorm1d(1))  # weight, bias, running_mean, running_var


@pytest.mark.parametrize(("bad", "shown"), [(NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_a_value_that_is_not_finite_is_named(bad, shown):
    clean = screen(Updates.of([[1.0, 2.0], [3.0, bad], [5.0, 6.0]], ids=[4, 7, 9]))
    assert clean.ids == (4, 9)
    assert clean.dropped == (Dropped(7, f"value 1 of its model is {shown}"),)


def test_infinities_of_opposite_sign_do_not_hide_each_other():
    assert screen(Updates.of([[INF, -INF], [1.0, 1.0]])).ids == (1,)


def test_large_finite_rows_are_kept_in_either_precision():
    """The one-pass sum may overflow in float64, but that alone is no reason to refuse anybody."""
    assert screen(Updates.of([[3e38, 3e38]])).ids == (0,)
    assert screen(Updates.of(torch.full((1, 2), 1.7e308, dtype=torch.float64))).ids == (0,)


def test_a_bad_value_far_behind_a_finite_sum_that_overflows_is_named(monkeypatch):
    """Blocks of four: the row overflows from the start, its NaN is value 9."""
    monkeypatch.setattr("smartfl.screening.BLOCK", 4)
    row = [3e38] * 9 + [NAN, 1.0]
    clean = screen(Updates.of([row, [3e38] * 11]))
    assert (clean.ids, clean.dropped) == ((1,), (Dropped(0, "value 9 of its model is nan"),))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of the resident set from /proc")
def test_screening_makes_no_copy_of_the_matrix():
    """A matrix of 256 MB in a process of its own: the peak may grow by a tenth of it."""
    code = """
import resource, torch
from smartfl.registry import build
from smartfl.screening import screen
from smartfl.types import Updates
torch.set_num_threads(1)
updates = Updates.of(torch.ones(16, 4_000_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert screen(updates).dropped == ()
updates.mix(updates.weights)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 26_000


def test_negative_variances_are_refused_and_negative_means_are_not():
    clean = screen(Updates.of([[1.0, 1, -1, 1], [1.0, 1, 1, -1], [1.0, 1, 1, 0]], spec=BATCHNORM))
    assert clean.ids == (0, 2)
    assert clean.dropped == (Dropped(1, "a running variance is negative"),)


@pytest.mark.parametrize("count", [-1.0, NAN, INF])
def test_impossible_counts_are_refused(count):
    clean = screen(Updates.of([[1.0], [2.0]], [count, 3.0]))
    assert clean.ids == (1,)
    assert clean.dropped is not None
    assert clean.dropped[0].reason == f"its sample count is {count:g}"


def test_a_negative_number_of_steps_is_refused():
    """FedNova divides by them.  None is legal."""
    clean = screen(Updates.of([[1.0], [2.0], [3.0]], num_steps=[3, -1, 0]))
    assert clean.ids == (0, 2)
    assert clean.dropped == (Dropped(1, "its step count is -1"),)


def test_a_count_of_zero_is_legal():
    assert screen(Updates.of([[1.0], [2.0]], [0, 3])).dropped == ()


def test_screened_updates_are_not_screened_again():
    once = screen(Updates.of([[1.0], [NAN]]))
    assert screen(once) is once


def test_refused_clients_get_weight_zero_in_their_place():
    result = FedAvg()(Updates.of([[NAN], [2.0], [INF], [4.0]], [100, 1, 100, 3], ids=[2, 4, 6, 8]))
    assert result.coefficients.tolist() == [0, 0.25, 0, 0.75]
    assert result.vector.tolist() == [3.5]
    assert [d.id for d in result.dropped] == [2, 6]


def test_rules_without_coefficients_stay_without():
    result = Median()(Updates.of([[NAN], [2.0], [4.0], [9.0]]))
    assert (result.vector.tolist(), result.coefficients) == ([4], None)


def test_with_nobody_left_the_global_model_is_kept():
    origin = torch.tensor([7.0, 8.0])

    def rule(updates: Updates, server: Server | None) -> Aggregate:
        raise AssertionError("a rule must not see an empty matrix")

    result = screened(rule, Updates.of([[NAN, 0.0], [0.0, INF]], origin=origin), None)
    assert result.vector.tolist() == [7, 8]
    assert result.vector.data_ptr() != origin.data_ptr()
    assert result.coefficients.tolist() == [0, 0]
    assert result.events == ("no valid client among 2: the global model is kept",)
    assert [d.id for d in result.dropped] == [0, 1]


def test_collect_refuses_rows_of_the_wrong_length_or_shape():
    rows = {5: torch.ones(2), 1: torch.ones(3), 3: torch.tensor([NAN, 1.0]), 2: torch.ones(1, 2), 4: torch.tensor(1.0)}
    updates = collect(rows, dict.fromkeys(rows, 2.0), torch.zeros(2), FlatSpec.plain(2), dict.fromkeys(rows, 4))
    assert (updates.ids, updates.num_steps.tolist()) == ((5,), [4])
    assert [d.id for d in updates.dropped] == [1, 2, 3, 4]
    assert updates.dropped[0].reason == "its model has shape (3,), (2,) expected"


def test_collect_with_nobody_valid():
    updates = collect({1: torch.ones(3)}, {1: 1.0}, torch.tensor([5.0, 6.0]), FlatSpec.plain(2))
    assert len(updates) == 0
    assert FedAvg()(updates).vector.tolist() == [5, 6]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.data(),
)
def test_a_bad_client_is_as_good_as_absent(rows, data):
    """0.6: adding a NaN client anywhere changes nothing; translation moves FedAvg and median along."""
    place = data.draw(st.integers(0, len(rows)))
    more = [*rows[:place], [1.0, NAN, 2.0], *rows[place:]]
    for rule in (FedAvg(), Median()):
        without = rule(Updates.of(rows)).vector
        assert torch.equal(rule(Updates.of(more)).vector, without)
        shifted = rule(Updates.of(torch.tensor(rows) + 8.0)).vector
        torch.testing.assert_close(shifted, without + 8.0, atol=1e-4, rtol=1e-5)


def test_a_rule_passes_on_who_was_refused_before_it_was_called():
    updates = collect({1: torch.ones(2), 2: torch.ones(3)}, {1: 1.0, 2: 1.0}, torch.zeros(2), FlatSpec.plain(2))
    assert [d.id for d in FedAvg()(updates).dropped] == [2]


GOOD = torch.ones(2)
ROWS = {
    "absent": (None, "its model is no tensor but of type NoneType"),
    "a list": ([1.0, 2.0], "its model is no tensor but of type list"),
    "a number": (7, "its model is no tensor but of type int"),
    "complex": (torch.ones(2, dtype=torch.complex64), "its model is no plain tensor of real numbers"),
    "sparse": (torch.ones(2).to_sparse(), "its model is no plain tensor of real numbers"),
    "without content": (torch.ones(2, device="meta"), "its model is no plain tensor of real numbers"),
    "objects": (np.array([None, 1.0], dtype=object), "its model is an array of object"),
    "too large": (torch.full((2,), 1e300, dtype=torch.float64), "value 0 of its model is inf"),
}
COUNTS = [None, "7", [3.0], {}, 10**400, -(10**400), NAN, INF, -1, 1j, torch.ones(2), torch.tensor(-3), object()]


@pytest.mark.parametrize("kind", ROWS)
def test_collect_refuses_whatever_a_row_is(kind):
    row, reason = ROWS[kind]
    updates = collect({1: GOOD, 2: row}, {1: 1, 2: 1}, torch.zeros(2), FlatSpec.plain(2))
    assert updates.ids == (1,)
    assert [d.id for d in updates.dropped] == [2]
    assert updates.dropped[0].reason.startswith(reason)


@pytest.mark.parametrize("count", COUNTS, ids=range(len(COUNTS)))
@pytest.mark.parametrize("field", ["num_examples", "num_steps"])
def test_collect_refuses_whatever_a_number_is(field, count):
    numbers = {"num_examples": {1: 5.0, 2: 5.0}, "num_steps": {1: 5, 2: 5}}
    numbers[field][2] = count
    updates = collect({1: GOOD, 2: GOOD}, origin=torch.zeros(2), spec=FlatSpec.plain(2), **numbers)
    assert (updates.ids, [d.id for d in updates.dropped]) == ((1,), [2])
    del numbers[field][2]
    assert collect({1: GOOD, 2: GOOD}, origin=torch.zeros(2), spec=FlatSpec.plain(2), **numbers).ids == (1,)


@pytest.mark.parametrize("steps", [0.5, 1e300, 1 << 60])
def test_collect_refuses_numbers_of_steps_that_are_no_whole_numbers(steps):
    assert len(collect({1: GOOD}, {1: 1}, torch.zeros(2), FlatSpec.plain(2), {1: steps})) == 0


def test_collect_takes_arrays_and_numbers_of_any_kind():
    rows = {1: np.array([1.0, 2.0]), 2: torch.tensor([1, 2]), 3: torch.ones(2, requires_grad=True)}
    counts = {1: np.float32(2.5), 2: torch.tensor(3), 3: 123_456_789}
    updates = collect(rows, counts, torch.zeros(2), FlatSpec.plain(2), {1: np.int64(1), 2: 2, 3: torch.tensor(3.0)})
    assert updates.ids == (1, 2, 3)
    assert updates.num_examples.tolist() == [2.5, 3, 123_456_789]
    assert updates.num_steps.tolist() == [1, 2, 3]
    assert not updates.matrix.requires_grad


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("part", ["vector", "coefficients"])
def test_what_is_not_finite_never_becomes_the_global_model(part, bad):
    def rule(updates: Updates, server: Server | None) -> Aggregate:
        values = {"vector": torch.ones(2), "coefficients": torch.ones(3, dtype=torch.float64) / 3}
        values[part][0] = bad
        return Aggregate(**values, events=("said",))

    result = screened(rule, Updates.of(torch.ones(3, 2), origin=[7.0, 8.0]), None)
    assert (result.vector.tolist(), result.coefficients.tolist()) == ([7, 8], [0, 0, 0])
    assert result.events == ("said", "the rule's result is not finite: the global model is kept")


class Forgetful(Uniform):
    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        return updates.matrix.mean(dim=0)  # type: ignore[return-value]


LINE = inspect.getsourcelines(Forgetful.aggregate)[1]
VECTOR = torch.zeros(2)


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (None, "it returned None"),
        (VECTOR, "it returned a Tensor"),
        (Aggregate([0.0, 0.0]), "its vector is a list"),
        (Aggregate(torch.zeros(2, dtype=torch.int64)), "its vector is a Tensor, a tensor of real numbers"),
        (Aggregate(torch.zeros(3)), r"its vector has shape \(3,\), \(2,\) is accepted"),
        (Aggregate(VECTOR, [0.5, 0.5]), "its coefficients are a list"),
        (Aggregate(VECTOR, torch.ones(5)), r"its coefficients have shape \(5,\), \(1,\) is accepted"),
    ],
)
def test_a_rule_that_returns_something_else_is_named(returned, fault):
    def mine(updates: Updates, server: Server | None) -> Aggregate:
        return returned

    line = inspect.getsourcelines(mine)[1]
    with pytest.raises(UserError, match=rf"^rule 'mine' \(.*test_screening\.py, line {line}\) must return .*{fault}"):
        screened(mine, Updates.of([[1.0, 2.0]]), None)


def test_a_rule_of_a_class_is_named_by_the_line_of_its_formula():
    with pytest.raises(UserError, match=rf"^rule 'Forgetful' \(.*test_screening\.py, line {LINE}\)"):
        Forgetful()(Updates.of([[1.0, 2.0]]))


@pytest.mark.parametrize("name", ["fednova", "fedavg"])
def test_numbers_that_overflow_in_a_rule_leave_the_model(name):
    """Each is finite and legal; together they are too much for float32."""
    rule = build("aggregators", name, {})
    updates = Updates.of([[3e38], [-3e38]], [1e300, 1.0], num_steps=[1, 1 << 53], origin=[5.0])
    assert torch.isfinite(rule(updates).vector).all()
