"""ALGORITHMS.md 3.2: the identities of FedProx."""

from __future__ import annotations

import pytest
import torch

from smartfl.clients.fedprox import FedProx
from smartfl.clients.plain import Plain
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dense
from smartfl.errors import UserError
from smartfl.models.mlp import mlp
from smartfl.optimizers import FlatSGD
from smartfl.rng import seeded, torch_stream


def trained(algorithm, recipe, samples=16):
    generator = torch.Generator().manual_seed(0)
    inputs = Dense(torch.randn(samples, 1, 2, 2, generator=generator))
    labels = torch.randint(0, 3, (samples,), generator=generator)
    with seeded(0, "model"):
        model = mlp((1, 2, 2), 3, (5,))
    trainer = LocalTrainer(model, recipe, algorithm)
    start = torch.linspace(-1, 1, trainer.spec.size)
    trainer.load(start)
    algorithm.begin(trainer.parameters, recipe.new_optimizer(), None, None)
    steps = trainer.train(inputs, labels, torch_stream(0, "client"))
    assert algorithm.finish(trainer.parameters, steps) is None
    row = torch.empty(trainer.spec.size)
    trainer.store(row)
    return row, start


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("decoupled", [False, True])
def test_without_pull_it_is_plain_training(optimizer, decoupled):
    recipe = Recipe(optimizer, lr=0.05, batch_size=4, epochs=2)
    assert torch.equal(trained(FedProx(mu=0.0, decoupled=decoupled), recipe)[0], trained(Plain(), recipe)[0])


@pytest.mark.parametrize("mu", [0.01, 1.0, 100.0])
def test_one_sgd_step_does_not_depend_on_the_pull(mu):
    recipe = Recipe("sgd", lr=0.05, batch_size=16)
    assert torch.equal(trained(FedProx(mu=mu), recipe)[0], trained(Plain(), recipe)[0])


def test_a_strong_pull_keeps_the_client_at_the_global_model():
    """μ → ∞ with SGD at lr = 1/μ: w_i → w^t."""
    distances = []
    for mu in (10.0, 1e3, 1e5):
        row, start = trained(FedProx(mu=mu), Recipe("sgd", lr=1 / mu, batch_size=4, epochs=3))
        distances.append(float((row - start).norm()))
    assert distances[0] > 50 * distances[1] > 2500 * distances[2]


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_pull_by_hand(decoupled):
    """w^t = 1, w = 3, g = 5, μ = 0.5, lr = 0.1: the gradient becomes 6; decoupled the weight becomes 3 − 0.1."""
    algorithm = FedProx(mu=0.5, decoupled=decoupled)
    algorithm.begin(torch.tensor([1.0]), FlatSGD(0.1), None, None)
    w, g = torch.tensor([3.0]), torch.tensor([5.0])
    algorithm.before_step(w, g)
    algorithm.after_step(w)
    expected = (2.9, 5.0) if decoupled else (3.0, 6.0)
    assert (w.item(), g.item()) == pytest.approx(expected)


def test_with_sgd_coupled_and_decoupled_differ_by_less_than_a_step():
    coupled, _ = trained(FedProx(mu=0.1), Recipe("sgd", lr=0.01, batch_size=4))
    decoupled, _ = trained(FedProx(mu=0.1, decoupled=True), Recipe("sgd", lr=0.01, batch_size=4))
    torch.testing.assert_close(coupled, decoupled, rtol=1e-3, atol=1e-4)
    assert not torch.equal(coupled, decoupled)


@pytest.mark.parametrize("mu", [-0.1, float("nan")])
def test_a_negative_pull_is_refused(mu):
    with pytest.raises(UserError, match="mu"):
        FedProx(mu=mu)
