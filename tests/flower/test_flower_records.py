"""Decoding what nodes send, and which array is which part of the vector."""

import numpy as np
import pytest
import torch
from flower_world import array, arrays_of, lying_header, model
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from torch import nn

from smartfl.errors import UserError
from smartfl.flower.layout import Layout
from smartfl.flower.records import Refused, mean_metrics, model_record, read_array, scalars


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_honest_array_arrives_in_any_float_type_and_order(dtype, order):
    values = np.array(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
    assert read_array(Array(values), (2, 3), "f", "w").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_nothing_is_allocated_for_a_header_that_lies(monkeypatch):
    """10^18 values would be 4 exabytes; and a shape that is right with data that are short is refused too."""
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(Refused, match=r"shape \(1000000000, 1000000000\), \(4, 3\) expected"):
        read_array(array(lying_header((10**9, 10**9))), (4, 3), "f", "w")
    with pytest.raises(Refused, match="48 bytes of data, 4000000000000000000 expected"):
        read_array(array(lying_header((10**9, 10**9))), (10**9, 10**9), "f", "w")
    assert read_array(array(lying_header((4, 3))), (4, 3), "f", "w").sum() == 0


def test_the_claims_beside_the_data_count_for_nothing():
    assert read_array(array(lying_header((4, 3)), shape=(10**12,), dtype="int8"), (4, 3), "f", "w").shape == (4, 3)


def test_a_model_goes_there_and_back():
    net = model()
    layout = Layout.of(arrays_of(net), net)
    row, counters = layout.read(arrays_of(net), torch.zeros(layout.spec.size))
    assert torch.equal(row, layout.spec.flatten(net))
    assert counters == [0]
    again = layout.record(row + 1, [7])
    assert list(again) == list(net.state_dict())
    assert again["1.num_batches_tracked"].numpy() == 7
    assert again["1.num_batches_tracked"].dtype == "int64"
    np.testing.assert_array_equal(again["0.weight"].numpy(), net.state_dict()["0.weight"].numpy() + 1)


class Odd(nn.Module):
    """A frozen layer, a tied one, a buffer that is not saved, a table of integers."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen = nn.Linear(2, 2), nn.Linear(2, 2)
        self.frozen.requires_grad_(False)
        self.tied = self.first
        self.register_buffer("unsaved", torch.full((2,), 5.0), persistent=False)
        self.register_buffer("table", torch.tensor([3, 1, 2]))

    def forward(self, x):
        return self.tied(self.frozen(self.first(x))) + self.unsaved


def test_frozen_tied_and_unsaved_tensors():
    net, app = Odd(), Odd()
    arrays = arrays_of(app)
    layout = Layout.of(arrays, net)
    assert "unsaved" not in arrays
    assert torch.equal(net.frozen.weight, app.frozen.weight)  # rules run the app's frozen layer, not another
    assert set(layout.fixed) == {"frozen.weight", "frozen.bias", "table"}
    row, _ = layout.read(arrays, layout.spec.flatten(net))
    assert layout.spec.unflatten(row)["unsaved"].tolist() == [5, 5]
    sent = layout.record(row + 1, [])
    assert list(sent) == list(arrays)
    np.testing.assert_array_equal(sent["first.weight"].numpy(), sent["tied.weight"].numpy())
    np.testing.assert_array_equal(sent["table"].numpy(), [3, 1, 2])
    np.testing.assert_array_equal(sent["frozen.weight"].numpy(), arrays["frozen.weight"].numpy())


def test_a_list_of_arrays_is_in_the_order_of_the_state_dict():
    net = model()
    layout = Layout.of(ArrayRecord([v.numpy() for v in net.state_dict().values()]), net)
    row, _ = layout.read(ArrayRecord([v.numpy() for v in net.state_dict().values()]), torch.zeros(layout.spec.size))
    assert torch.equal(row, layout.spec.flatten(net))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update({"more": Array(np.zeros(1))}), "has 'more', which the model of AggregatorStrategy has not"),
        (lambda r: r.pop("3.bias"), r"lacks '3.bias'; ArrayRecord\(model.state_dict\(\)\)"),
        (lambda r: r.update({"3.bias": Array(np.zeros(2))}), r"do not fit the model .*'3.bias' has shape \(2,\)"),
    ],
)
def test_initial_arrays_of_another_model(change, message):
    record = arrays_of(model())
    change(record)
    with pytest.raises(UserError, match=message):
        Layout.of(record, model())


def test_the_model_is_found_by_its_key_or_because_there_is_no_other():
    one, two = ArrayRecord({"a": Array(np.zeros(1))}), ArrayRecord({"b": Array(np.zeros(1))})
    assert "a" in model_record(RecordDict({"arrays": one, "more": two}), "arrays")
    assert "b" in model_record(RecordDict({"whatever": two}), "arrays")
    with pytest.raises(Refused, match="2 ArrayRecords and none called 'arrays'"):
        model_record(RecordDict({"one": one, "two": two}), "arrays")


def test_metrics_are_averaged_over_whoever_has_them():
    said = [{"n": 1, "loss": 1.0}, {"n": 3, "loss": 5.0, "extra": 2.0}, {"n": 3, "loss": float("nan")}]
    means = mean_metrics(said, [1.0, 3.0, 3.0], "n")
    assert means is not None
    assert dict(means.items()) == {"loss": pytest.approx(4.0), "extra": 2.0}
    assert mean_metrics([], [], "n") is None
    assert mean_metrics([{"loss": 1e308}] * 2, [1e308, 1e308], "n")["loss"] == pytest.approx(1e308)  # no overflow


def test_lists_among_metrics_are_left_out():
    assert scalars(RecordDict({"m": MetricRecord({"a": 1, "b": [1, 2], "c": 2.5})})) == {"a": 1, "c": 2.5}
