"""A module's state as one vector and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smartfl.flat import FlatSpec
from smartfl.models.resnet import resnet8


class Odd(nn.Module):
    """Everything a layout must get right: a frozen parameter, tied weights, float, counter and table buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))[:, self.order] * self.frozen


def test_parameters_come_first_in_their_order_then_float_buffers():
    spec = FlatSpec.of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
    assert [e.name for e in spec.parameters] == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
    assert [e.name for e in spec.buffers] == ["1.running_mean", "1.running_var"]
    assert [e.start for e in spec.parameters + spec.buffers] == [0, 6, 9, 12, 15, 18, 19, 22]
    assert (spec.num_parameters, spec.size) == (19, 25)
    assert spec.integers == ("1.num_batches_tracked",)
    assert spec.variances == (slice(22, 25),)


def test_flatten_and_load_are_inverse_and_flatten_copies():
    model = resnet8((1, 8, 8), 4)
    spec = FlatSpec.of(model)
    vector = torch.randn(spec.size, generator=torch.Generator().manual_seed(0))
    spec.load(model, vector)
    flat = spec.flatten(model)
    assert torch.equal(flat, vector)
    flat.zero_()
    assert torch.equal(spec.flatten(model), vector)
    for e in spec.parameters + spec.buffers:
        assert torch.equal(model.state_dict()[e.name].reshape(-1), vector[e.start : e.stop])


def test_frozen_parameters_and_tables_of_integers_stay_out_and_tied_weights_come_once():
    model = Odd()
    spec = FlatSpec.of(model)
    assert [e.name for e in spec.parameters] == [
        "first.weight",
        "first.bias",
        "second.bias",
        "norm.weight",
        "norm.bias",
    ]
    # A table of indices is a constant of the module, not a counter that clients advance.
    assert spec.integers == ("norm.num_batches_tracked",)
    spec.load(model, torch.zeros(spec.size))
    assert model.frozen.tolist() == [2, 2, 2]
    assert model.order.tolist() == [2, 0, 1]
    assert model.second.weight is model.first.weight


@pytest.mark.parametrize("training", [False, True])
def test_a_call_equals_the_module_that_holds_the_vector(training):
    model, other = Odd(), Odd()
    spec = FlatSpec.of(model)
    generator = torch.Generator().manual_seed(1)
    vector = torch.rand(spec.size, generator=generator)
    inputs = torch.randn(5, 3, generator=generator)
    model.train(training)
    other.train(training)
    spec.load(other, vector)
    before = spec.flatten(model)
    output = spec.functional_call(model, vector.clone(), inputs)
    torch.testing.assert_close(output, other(inputs))
    assert torch.equal(spec.flatten(model), before), "the module's own state is not touched"


def test_gradients_flow_through_unflatten():
    """f(v) = ½‖v‖² tensor by tensor: the gradient is v itself, buffers included."""
    spec = FlatSpec.of(Odd())
    vector = torch.arange(float(spec.size), requires_grad=True)
    named = spec.unflatten(vector)
    (sum(t.square().sum() for t in named.values()) / 2).backward()
    assert torch.equal(vector.grad, vector.detach())
    assert {k: tuple(t.shape) for k, t in named.items()} == {e.name: e.shape for e in spec.parameters + spec.buffers}


def test_tied_weights_get_the_sum_of_both_gradients():
    """y = w(wx) has dy/dw = 2wx: w = 3, x = 5 gives 30."""
    first, second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    spec = FlatSpec.of(model)
    vector = torch.tensor([3.0], requires_grad=True)
    spec.functional_call(model, vector, torch.tensor([[5.0]])).sum().backward()
    assert vector.grad.tolist() == [30]


def test_integer_buffers_are_read_as_copies():
    model = nn.BatchNorm1d(2)
    model(torch.randn(4, 2))
    spec = FlatSpec.of(model)
    counters = spec.read_integers(model)
    assert {k: int(v) for k, v in counters.items()} == {"num_batches_tracked": 1}
    counters["num_batches_tracked"].zero_()
    assert int(model.num_batches_tracked) == 1


def test_variances_are_raised_to_a_positive_floor_and_nothing_else_is():
    spec = FlatSpec.of(nn.BatchNorm1d(2))
    vector = spec.clamp_variances_(torch.full((2, spec.size), -1.0))
    assert vector[:, :6].eq(-1).all()
    assert vector[:, 6:].tolist() == [[pytest.approx(1e-12)] * 2] * 2


def test_a_wrong_length_is_refused():
    with pytest.raises(RuntimeError, match="split"):
        FlatSpec.plain(3).unflatten(torch.zeros(4))


def test_plain_vectors_have_no_buffers():
    spec = FlatSpec.plain(4)
    assert (spec.num_parameters, spec.size, spec.buffers, spec.variances) == (4, 4, (), ())
