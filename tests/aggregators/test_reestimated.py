"""The wrapper that measures BatchNorm statistics anew."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedavgm import FedAvgM
from smartfl.aggregators.fltrust import FLTrust
from smartfl.aggregators.reestimated import Reestimated
from smartfl.aggregators.sfedavg import SFedAvg
from smartfl.aggregators.smartfl import SmartFL
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.registry import build
from smartfl.types import Proxy, Server, Updates


def test_by_hand():
    """Two clients x ↦ 1·x and 3·x before the norm: the average 2x sees 0, 2, 4, 6 on the inputs 0 to 3.

    Mean 3 and unbiased variance 20/3, whatever statistics the clients send.
    """
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1, affine=False))
    spec = FlatSpec.of(model)
    rows = torch.stack([spec.flatten(model)] * 2)
    named = [spec.unflatten(row) for row in rows]
    for parts, slope in zip(named, (1.0, 3.0), strict=True):
        parts["0.weight"].fill_(slope)
        parts["1.running_mean"].fill_(100 * slope)
        parts["1.running_var"].fill_(50.0)
    server = Server(model=model, proxy=Proxy(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), None, 2))
    result = Reestimated(FedAvg())(Updates.of(rows, spec=spec), server)
    found = spec.unflatten(result.vector)
    assert [found[k].item() for k in ("0.weight", "1.running_mean", "1.running_var")] == pytest.approx([2, 3, 20 / 3])
    assert result.coefficients.tolist() == [0.5, 0.5]


def test_parameters_and_state_are_the_rules(world):
    w = world(batchnorm=True)
    rule = Reestimated(FedAvgM())
    plain, wrapped = FedAvgM()(w.updates, w.unlabelled()), rule(w.updates, w.unlabelled())
    size = w.updates.spec.num_parameters
    assert torch.equal(plain.vector[:size], wrapped.vector[:size])
    assert not torch.allclose(plain.vector[size:], wrapped.vector[size:])
    assert rule.state_dict().keys() == rule.rule.state_dict().keys() != set()


def test_without_batchnorm_it_is_the_rule(world):
    w = world(batchnorm=False)
    assert torch.equal(Reestimated(FedAvg())(w.updates, w.unlabelled()).vector, FedAvg()(w.updates).vector)


def test_smartfl_does_so_already(world):
    w = world(batchnorm=True)
    found = [rule(w.updates, w.server()).vector for rule in (SmartFL(), Reestimated(SmartFL()))]
    torch.testing.assert_close(*found)


def test_statistics_that_overflow_are_not_taken(world):
    """Inputs so large that the first layer's variance is infinite."""
    w = world(batchnorm=True)
    server = Server(model=w.model, proxy=Proxy(w.proxy.inputs * 1e30, None, 3))
    result = Reestimated(FedAvg())(w.updates, server)
    assert torch.equal(result.vector, FedAvg()(w.updates).vector)
    assert result.events == ("statistics on the proxy data are not finite: not taken",)


def test_a_rule_that_chooses_its_cohort_still_does():
    """S-FedAvg draws clients by their relevance; a wrapper that hid that would leave nothing of it."""
    assert Reestimated(SFedAvg()).cohort_weights([3, 1]).tolist() == pytest.approx([0.5, 0.5])
    assert not hasattr(Reestimated(FedAvg()), "cohort_weights")


def test_what_it_needs(world):
    assert Reestimated(FedAvg()).needs_proxy == "unlabelled"
    assert Reestimated(FLTrust()).needs_proxy == "labelled"
    with pytest.raises(UserError, match="Reestimated needs a server with a model and proxy data"):
        Reestimated(FedAvg())(world(batchnorm=True).updates)
    table = {"rule": {"name": "fedavg"}}
    assert build("aggregators", "reestimated", table, "aggregator") == Reestimated(FedAvg())
