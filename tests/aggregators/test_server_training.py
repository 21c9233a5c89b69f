from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smartfl.aggregators.server_training import (
    ServerRecipe,
    finite_or_start,
    server_epochs,
    train_on_server,
)
from smartfl.errors import UserError
from smartfl.flat import FlatSpec


def run(w, recipe, seed=0, model=None, samples=None):
    model = model or w.model
    inputs, labels = w.proxy.inputs[:samples], w.proxy.labels[:samples]
    spec = FlatSpec.of(model)
    start = spec.flatten(model)
    generator = torch.Generator().manual_seed(seed)
    loss = lambda z, index: F.cross_entropy(z, labels[index])  # noqa: E731
    return train_on_server(model, spec, start, inputs, loss, recipe, generator)


def test_one_full_batch_sgd_step_is_the_gradient_by_hand(world):
    """Softmax regression: ∂CE/∂W = (softmax(z) − onehot)ᵀ x / N, ∂CE/∂b = mean(softmax(z) − onehot)."""
    w = world()
    got = run(w, ServerRecipe(1, 0.5, 100, "sgd")).numpy()
    x, y = w.proxy.inputs.numpy(), w.proxy.labels.numpy()
    weight, bias = (p.detach().numpy() for p in w.model.parameters())
    z = x @ weight.T + bias
    q = np.exp(z - z.max(1, keepdims=True))
    residual = q / q.sum(1, keepdims=True) - np.eye(3)[y]
    expected = np.concatenate([(weight - 0.5 * residual.T @ x / len(x)).ravel(), bias - 0.5 * residual.mean(0)])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_clipping_bounds_the_step_of_sgd(world):
    w = world()
    start = FlatSpec.of(w.model).flatten(w.model)
    moved = (run(w, ServerRecipe(1, 1.0, 100, "sgd", clip=0.01)) - start).norm()
    torch.testing.assert_close(moved, torch.tensor(0.01), rtol=1e-3, atol=0)


def test_no_epoch_returns_the_start_itself(world):
    w = world(batchnorm=True)
    assert torch.equal(run(w, ServerRecipe(0, 1.0, 8)), FlatSpec.of(w.model).flatten(w.model))


def test_same_generator_same_result_and_the_module_is_untouched(world):
    w = world(batchnorm=True)
    before = FlatSpec.of(w.model).flatten(w.model)
    integers = FlatSpec.of(w.model).read_integers(w.model)
    first, again = run(w, ServerRecipe(2, 0.01, 8)), run(w, ServerRecipe(2, 0.01, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, run(w, ServerRecipe(2, 0.01, 8), seed=1))
    assert torch.equal(FlatSpec.of(w.model).flatten(w.model), before)
    assert FlatSpec.of(w.model).read_integers(w.model) == integers


def test_dropout_depends_on_the_generator_alone(world):
    w = world()
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    recipe = ServerRecipe(2, 0.01, 8)
    first = run(w, recipe, model=model)
    torch.rand(5)
    assert torch.equal(first, run(w, recipe, model=model))
    assert not torch.equal(first, run(w, recipe, model=model, seed=3))


def test_batchnorm_statistics_drift_towards_the_data(world):
    """One batch, momentum 0.1: running_mean ← 0.9 · 0 + 0.1 · mean of the first layer's outputs."""
    w = world(batchnorm=True)
    spec = FlatSpec.of(w.model)
    trained = spec.unflatten(run(w, ServerRecipe(1, 1e-9, 100)))
    expected = 0.1 * w.model[0](w.proxy.inputs).mean(dim=0)
    torch.testing.assert_close(trained["1.running_mean"], expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("samples", [1, 9])
def test_a_batch_of_one_sample_does_not_crash_batchnorm(world, samples):
    w = world(batchnorm=True)
    result = run(w, ServerRecipe(2, 0.01, 8), samples=samples)
    assert torch.isfinite(result).all()
    assert not torch.equal(result, FlatSpec.of(w.model).flatten(w.model))


def test_a_single_sample_leaves_the_statistics_alone(world):
    w = world(batchnorm=True)
    spec = FlatSpec.of(w.model)
    size = spec.num_parameters
    assert torch.equal(run(w, ServerRecipe(2, 0.01, 8), samples=1)[size:], spec.flatten(w.model)[size:])


def test_frozen_parameters_stay(world):
    w = world(batchnorm=True)
    w.model[0].weight.requires_grad_(False)
    result = run(w, ServerRecipe(1, 0.1, 8))
    assert len(result) == FlatSpec.of(w.model).size
    assert torch.isfinite(result).all()


def test_one_model_is_yielded_per_epoch(world):
    w = world()
    spec = FlatSpec.of(w.model)
    loss = lambda z, index: F.cross_entropy(z, w.proxy.labels[index])  # noqa: E731
    generator = torch.Generator().manual_seed(0)
    recipe = ServerRecipe(3, 0.1, 8)
    models = list(server_epochs(w.model, spec, spec.flatten(w.model), w.proxy.inputs, loss, recipe, generator))
    assert len(models) == 3
    assert torch.equal(models[-1], run(w, recipe))
    assert not torch.equal(models[0], models[1])


def test_divergence_returns_the_start_and_says_so():
    start = torch.zeros(2)
    assert finite_or_start(torch.tensor([1.0, torch.nan]), start) == (start, finite_or_start(start / 0, start)[1])
    assert finite_or_start(torch.ones(2), start)[1] == ()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epochs": -1}, "server_epochs"),
        ({"lr": 0.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"batch_size": 0}, "batch_size"),
        ({"optimizer": "rmsprop"}, "optimizer"),
        ({"clip": 0.0}, "clip"),
    ],
)
def test_a_bad_recipe_names_the_setting(settings, named):
    with pytest.raises(UserError, match=named):
        ServerRecipe(**({"epochs": 1, "lr": 0.1, "batch_size": 8} | settings))
