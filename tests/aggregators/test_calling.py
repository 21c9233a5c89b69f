"""Calling a rule as a library: plain arrays, models, and the mistakes people make with them."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from smartfl import FlatSpec, Proxy, Server, Updates
from smartfl.aggregators import Aggregator, Finetune, FLTrust, Krum, Sageflow, SmartFL, SmartFLUnlabelled
from smartfl.errors import UserError


def two_opinions() -> tuple[nn.Module, torch.Tensor, Proxy]:
    """A linear model of (x) → 2 logits; client 0 and 2 say "class = sign of x", client 1 the opposite."""
    model = nn.Linear(1, 2)
    right = torch.tensor([-1.0, 1.0, 0.0, 0.0])
    x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    return model, torch.stack([right, -right, right]), Proxy(x, torch.tensor([0, 0, 1, 1]), 2)


def test_plain_rows_take_the_layout_of_the_servers_model() -> None:
    model, rows, proxy = two_opinions()
    server = Server(model=model, proxy=proxy)
    plain = SmartFL()(Updates.of(rows), server)
    told = SmartFL()(Updates.of(rows, spec=FlatSpec.of(model)), Server(model=model, proxy=proxy))
    assert torch.equal(plain.vector, told.vector)
    assert plain.coefficients is not None
    assert plain.coefficients[1] == 0


@pytest.mark.parametrize("rule", [SmartFL, SmartFLUnlabelled, FLTrust, Finetune, Sageflow])
def test_rows_and_model_may_have_different_precision(rule: type[Aggregator]) -> None:
    """NumPy's arrays are float64; the result is of the model's type, and the same to its precision."""
    model, rows, proxy = two_opinions()
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)  # type: ignore[arg-type]
    expected = rule()(Updates.of(rows), Server(model=model, proxy=proxy)).vector
    mixed = rule()(Updates.of(rows.double().numpy()), Server(model=model, proxy=proxy)).vector
    assert torch.equal(mixed, expected)
    double = Server(model=deepcopy(model).double(), proxy=replace(proxy, inputs=proxy.inputs.double()))
    for given in (rows, rows.double()):
        wide = rule()(Updates.of(given), double).vector
        assert wide.dtype == torch.float64
        torch.testing.assert_close(wide.float(), expected, atol=1e-3, rtol=1e-3)  # Adam magnifies rounding


def test_plain_rows_of_another_length_are_refused_by_a_rule_that_needs_the_model_and_by_no_other() -> None:
    model, rows, proxy = two_opinions()
    server = Server(model=model, proxy=proxy)
    longer = torch.cat([rows, rows], dim=1)
    with pytest.raises(UserError, match=r"rows of 8 values do not fit the server's model, which has 4"):
        SmartFL()(Updates.of(longer), server)
    assert Krum(f=0)(Updates.of(longer), server).vector.shape == (8,)


def test_buffers_of_plain_rows_are_seen_as_buffers() -> None:
    """Krum's distances read parameters only: client 0 has a running mean of its own and is still nearest to all."""
    model = nn.BatchNorm1d(1)  # weight, bias | running mean, running variance
    rows = torch.tensor([[1.0, 0, 99, 1], [1.2, 0, 0, 1], [0.9, 0, 0, 1], [1.4, 0, 0, 1], [5, 5, 0, 1]])
    for server, chosen in ((Server(model=model), [1, 0, 0, 0, 0]), (None, [0, 1, 0, 0, 0])):
        coefficients = Krum(f=1)(Updates.of(rows), server).coefficients
        assert coefficients is not None
        assert coefficients.tolist() == chosen


def test_an_array_in_place_of_updates_is_answered_with_the_way_to_wrap_it() -> None:
    with pytest.raises(TypeError, match=r"Krum takes Updates; Updates\.of\(x\)"):
        Krum(f=1)(torch.zeros(5, 3))  # type: ignore[arg-type]


def test_rules_that_ask_samples_know_no_number_of_bad_rows_they_are_valid_for() -> None:
    assert SmartFL().tolerates(48) is None
    assert SmartFLUnlabelled().tolerates(48) is None
