from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedavgm import FedAvgM
from smartfl.errors import UserError
from smartfl.types import Updates


def test_two_rounds_by_hand():
    """w⁰ = 0, average 2: v = −2, w¹ = 2. Average 3 from 2: v = 0.9·(−2) + (2 − 3) = −2.8, w² = 4.8."""
    rule = FedAvgM()
    first = rule(Updates.of([[1.0], [3.0]], origin=[0.0]))
    assert first.vector.tolist() == [2]
    second = rule(Updates.of([[3.0], [3.0]], origin=[2.0]))
    assert second.vector.tolist() == pytest.approx([4.8])
    assert second.coefficients.tolist() == [0.5, 0.5]


def test_the_server_step_scales_the_velocity():
    """η = 0.5: w = 1 − 0.5·(1 − 3) = 2."""
    assert FedAvgM(eta=0.5)(Updates.of([[3.0]], origin=[1.0])).vector.tolist() == [2]


def test_without_momentum_it_is_exactly_fedavg_round_after_round(world):
    w = world(batchnorm=True)
    rule = FedAvgM(beta=0.0)
    for _ in range(2):
        assert torch.equal(rule(w.updates).vector, FedAvg()(w.updates).vector)


def test_buffers_are_averaged(world):
    w = world(batchnorm=True)
    rule = FedAvgM()
    rule(w.updates)
    size = w.updates.spec.num_parameters
    result, fedavg = rule(w.updates).vector, FedAvg()(w.updates).vector
    assert torch.equal(result[size:], fedavg[size:])
    assert not torch.allclose(result[:size], fedavg[:size])


def test_the_state_survives_a_round_trip(world):
    w = world()
    rule, resumed = FedAvgM(), FedAvgM()
    assert rule.state_dict() == {}
    rule(w.updates)
    resumed.load_state_dict({k: v.clone() for k, v in rule.state_dict().items()})
    assert torch.equal(rule(w.updates).vector, resumed(w.updates).vector)
    resumed.load_state_dict({})
    assert torch.equal(resumed(w.updates).vector, FedAvgM()(w.updates).vector)


def test_a_saved_state_does_not_change_with_later_rounds():
    rule = FedAvgM()
    rule(Updates.of([[1.0]]))
    saved = rule.state_dict()
    before = saved["velocity"].clone()
    rule(Updates.of([[5.0]]))
    assert torch.equal(saved["velocity"], before)


def test_nan_rows_are_as_good_as_absent_and_an_empty_round_leaves_the_velocity():
    rule, other = FedAvgM(), FedAvgM()
    rule(Updates.of([[1.0], [torch.nan]]))
    other(Updates.of([[1.0]]))
    rule(Updates.of([[torch.inf]]))
    assert torch.equal(rule.state_dict()["velocity"], other.state_dict()["velocity"])


def test_a_huge_row_gives_a_finite_result():
    rule = FedAvgM()
    for _ in range(3):
        assert torch.isfinite(rule(Updates.of([[1e30], [1.0]])).vector).all()


def test_bad_settings_are_the_users_mistake():
    with pytest.raises(UserError, match="beta"):
        FedAvgM(beta=1.0)
    with pytest.raises(UserError, match="eta"):
        FedAvgM(eta=0.0)
