from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.finetune import Finetune
from smartfl.errors import UserError


def test_without_an_epoch_it_is_exactly_fedavg(world):
    w = world(batchnorm=True)
    result, fedavg = Finetune(server_epochs=0)(w.updates, w.server()), FedAvg()(w.updates)
    assert torch.equal(result.vector, fedavg.vector)
    assert torch.equal(result.coefficients, fedavg.coefficients)


def test_one_batch_is_one_adam_step_of_signs_from_fedavg(world):
    """The first Adam step is lr·g/(|g| + 1e-8): every parameter moves by lr against the sign of its gradient."""
    w = world()
    vector = FedAvg()(w.updates).vector.requires_grad_()
    loss = F.cross_entropy(w.updates.spec.functional_call(w.model, vector, w.proxy.inputs), w.proxy.labels)
    (gradient,) = torch.autograd.grad(loss, vector)
    result = Finetune(lr=0.01, batch_size=100)(w.updates, w.server())
    torch.testing.assert_close(result.vector, (vector - 0.01 * gradient.sign()).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batchnorm", [False, True])
def test_training_lowers_the_proxy_loss(world, batchnorm):
    w = world(batchnorm=batchnorm)

    def loss(vector):
        w.model.eval()
        return float(F.cross_entropy(w.updates.spec.functional_call(w.model, vector, w.proxy.inputs), w.proxy.labels))

    before = loss(FedAvg()(w.updates).vector)
    assert loss(Finetune(server_epochs=30, lr=0.02, batch_size=8)(w.updates, w.server()).vector) < 0.6 * before


def test_an_overflowing_client_is_left_out_of_the_start(world):
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    result = Finetune(batch_size=8)(huge, w.server())
    torch.testing.assert_close(result.vector, Finetune(batch_size=8)(w.updates, w.server()).vector)
    assert result.coefficients[-1] == 0
    assert "9" in result.events[0]


def test_a_huge_finite_row_gives_a_finite_result(world):
    w = world(batchnorm=True)
    row = w.updates.matrix[0].clone()
    row[: w.updates.spec.num_parameters] = 1e30
    result = Finetune()(w.with_row(9, row), w.server())
    assert torch.isfinite(result.vector).all()
    assert result.events


def test_divergence_keeps_the_average(world):
    w = world(batchnorm=True)
    result = Finetune(server_epochs=3, lr=3e37, batch_size=8)(w.updates, w.server())
    assert torch.equal(result.vector, FedAvg()(w.updates).vector)
    assert "diverged" in result.events[0]


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    assert torch.equal(Finetune()(plus, w.server()).vector, Finetune()(w.updates, w.server()).vector)


def test_missing_labels_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="Finetune needs labelled"):
        Finetune()(w.updates, w.unlabelled())
    with pytest.raises(UserError, match="Finetune needs a server"):
        Finetune(server_epochs=0)(w.updates)
    with pytest.raises(UserError, match="lr"):
        Finetune(lr=-1)
