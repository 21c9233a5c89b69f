from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.feddf import FedDF
from smartfl.errors import UserError
from smartfl.types import Updates


def teacher_of(w, updates):
    """Mean logits by loading one client after the other."""
    total = 0
    for row in updates.matrix:
        updates.spec.load(w.model, row)
        w.model.eval()
        total = total + w.model(w.proxy.inputs).detach()
    return total / len(updates)


def divergence(w, vector, z):
    w.model.eval()
    log_p = F.log_softmax(w.updates.spec.functional_call(w.model, vector, w.proxy.inputs), dim=1)
    q = z.softmax(dim=1)
    return (q * (q.log() - log_p)).sum(dim=1).mean()


def test_without_an_epoch_it_is_exactly_fedavg(world):
    w = world(batchnorm=True)
    result, fedavg = FedDF(server_epochs=0)(w.updates, w.unlabelled()), FedAvg()(w.updates)
    assert torch.equal(result.vector, fedavg.vector)
    assert torch.equal(result.coefficients, fedavg.coefficients)


def test_one_batch_is_one_adam_step_down_the_divergence(world):
    """First Adam step: lr against the sign of ∇KL(teacher ‖ FedAvg model); sign is blind to the clip at 5."""
    w = world()
    vector = FedAvg()(w.updates).vector.requires_grad_()
    (gradient,) = torch.autograd.grad(divergence(w, vector, teacher_of(w, w.updates)), vector)
    assert gradient.abs().min() > 1e-5
    result = FedDF(server_epochs=1, lr=0.01, batch_size=100)(w.updates, w.unlabelled())
    torch.testing.assert_close(result.vector, (vector - 0.01 * gradient.sign()).detach(), rtol=0, atol=2e-5)


def test_the_student_approaches_the_ensemble(world):
    w = world(batchnorm=True, spread=1.0)
    z = teacher_of(w, w.updates)
    before = divergence(w, FedAvg()(w.updates).vector, z)
    after = divergence(w, FedDF(server_epochs=60, lr=0.02)(w.updates, w.unlabelled()).vector, z)
    assert after < 0.3 * before


def test_labels_are_never_read(world):
    w = world()
    absurd = replace(w.proxy, labels=torch.full_like(w.proxy.labels, 10**9))
    first, second = FedDF()(w.updates, w.unlabelled()), FedDF()(w.updates, w.server(proxy=absurd))
    assert torch.equal(first.vector, second.vector)
    assert FedDF.needs_proxy == "unlabelled"


def test_a_given_teacher_replaces_the_clients(world):
    """Given the uniform mean of logits it changes nothing: clients teach alike although their counts differ."""
    w = world()
    own = FedDF(batch_size=8)(w.updates, w.unlabelled())
    given = FedDF(batch_size=8)(w.updates, w.unlabelled(teacher=teacher_of(w, w.updates)))
    torch.testing.assert_close(given.vector, own.vector, rtol=1e-3, atol=1e-4)
    other = FedDF(batch_size=8)(w.updates, w.unlabelled(teacher=10 * w.proxy.inputs))
    assert not torch.allclose(other.vector, own.vector, atol=1e-3)


def test_a_teacher_without_finite_numbers_is_not_followed(world):
    w = world()
    result = FedDF()(w.updates, w.unlabelled(teacher=torch.full((24, 3), torch.nan)))
    assert torch.equal(result.vector, FedAvg()(w.updates).vector)
    assert "teacher" in result.events[0]


def test_an_overflowing_client_neither_teaches_nor_starts(world):
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    result = FedDF()(huge, w.unlabelled())
    torch.testing.assert_close(result.vector, FedDF()(w.updates, w.unlabelled()).vector)
    assert result.coefficients[-1] == 0
    assert "9" in result.events[0]


def test_only_overflowing_clients_keep_the_global_model(world):
    w = world()
    result = FedDF()(w.updates.with_matrix(torch.full_like(w.updates.matrix, 3e38)), w.unlabelled())
    assert torch.equal(result.vector, w.updates.origin)


def test_a_huge_finite_row_gives_a_finite_result(world):
    w = world(batchnorm=True)
    row = w.updates.matrix[0].clone()
    row[: w.updates.spec.num_parameters] = 1e30
    assert torch.isfinite(FedDF(server_epochs=2)(w.with_row(9, row), w.unlabelled()).vector).all()


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    assert torch.equal(FedDF()(plus, w.unlabelled()).vector, FedDF()(w.updates, w.unlabelled()).vector)


def test_one_proxy_sample_and_one_client_work(world):
    w = world(batchnorm=True, samples=1)
    one = Updates.of(w.updates.matrix[:1], origin=w.updates.origin, spec=w.updates.spec)
    assert torch.isfinite(FedDF()(one, w.unlabelled()).vector).all()


def test_missing_proxy_data_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="FedDF needs a server"):
        FedDF()(w.updates)
    with pytest.raises(UserError, match="temperature"):
        FedDF(temperature=0)
    with pytest.raises(UserError, match="clip"):
        FedDF(clip=-1.0)
