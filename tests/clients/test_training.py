"""Local training on flat storage against torch.optim on a plain copy of the model."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smartfl.clients.plain import Plain
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dense
from smartfl.flat import FlatSpec
from smartfl.models.convnet import convnet
from smartfl.models.mlp import mlp
from smartfl.models.resnet import resnet8
from smartfl.rng import seeded, torch_stream

MODELS = {"mlp": mlp, "convnet": convnet, "resnet8": resnet8}
RECIPES = {
    "adam": (Recipe(lr=2e-3, batch_size=8, epochs=2), lambda p: torch.optim.Adam(p, lr=2e-3)),
    "adam, decay": (
        Recipe(lr=2e-3, batch_size=8, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=2e-3, weight_decay=0.1),
    ),
    "sgd": (Recipe("sgd", lr=0.05, batch_size=7), lambda p: torch.optim.SGD(p, lr=0.05)),
    "sgd, momentum": (
        Recipe("sgd", lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=8, epochs=2),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
}


def make(name):
    with seeded(0, "model"):
        return MODELS[name]((1, 8, 8), 4)


def samples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, 1, 8, 8, generator=generator)
    return Dense(values), torch.randint(0, 4, (count,), generator=generator)


def plainly(model, recipe, optimizer, inputs, labels, generator):
    """The textbook loop; a batch of one sample sees BatchNorm's running statistics."""
    model.train()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for _ in range(recipe.epochs):
        for index in torch.randperm(len(labels), generator=generator).split(recipe.batch_size):
            for norm in norms:
                norm.train(len(index) > 1)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs.values[index]), labels[index]).backward()
            optimizer.step()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_textbook_loop(name, recipe):
    """20 samples in batches of 8 or 7: the last batch is short."""
    settings, optimizer = RECIPES[recipe]
    inputs, labels = samples(20)
    model, spec = make(name), FlatSpec.of(make(name))
    trainer = LocalTrainer(make(name), settings, Plain())
    trainer.load(spec.flatten(model))
    steps = trainer.train(inputs, labels, torch_stream(0, "client"))
    assert steps == 3 * settings.epochs
    plainly(model, settings, optimizer(model.parameters()), inputs, labels, torch_stream(0, "client"))
    row = torch.empty(spec.size)
    trainer.store(row)
    # Where a gradient is nearly zero, rounding decides Adam's whole step: allow a quarter of one.
    atol = settings.lr / 4 if settings.optimizer == "adam" else 2e-5
    torch.testing.assert_close(row, spec.flatten(model), rtol=2e-4, atol=atol)
    counters = [int(v) for v in spec.read_integers(model).values()]
    assert trainer.integers() == counters


@pytest.mark.parametrize("name", MODELS)
def test_load_and_store_are_inverse_and_keep_the_specs_order(name):
    """Kernels lie channels-last inside the trainer and nowhere else."""
    trainer = LocalTrainer(make(name), Recipe(), Plain())
    vector = torch.rand(trainer.spec.size, generator=torch.Generator().manual_seed(3)) + 0.1
    trainer.load(vector)
    row = torch.empty_like(vector)
    trainer.store(row)
    assert torch.equal(row, vector)
    inputs, _ = samples(5)
    trainer.model.eval()
    expected = trainer.spec.functional_call(make(name).eval(), vector, inputs.values)
    torch.testing.assert_close(trainer.model(inputs.values), expected, rtol=1e-4, atol=1e-4)
    part = vector[: trainer.spec.num_parameters]
    assert torch.equal(trainer.outward(trainer.inward(part)), part)


def test_a_client_does_not_see_the_one_before():
    """Fresh optimiser, loaded statistics: the same client gives the same row, whoever came before."""
    inputs, labels = samples(20)
    trainer = LocalTrainer(make("resnet8"), Recipe(batch_size=8), Plain())
    start = trainer.spec.flatten(make("resnet8"))
    rows = []
    for others in (0, 1):
        if others:
            trainer.load(start)
            trainer.train(*samples(9, seed=5), torch_stream(1, "other"))
        trainer.load(start)
        trainer.set_integers([0] * len(trainer.spec.integers))
        trainer.train(inputs, labels, torch_stream(0, "client"))
        row = torch.empty(trainer.spec.size)
        trainer.store(row)
        rows.append(row)
    assert torch.equal(rows[0], rows[1])


@pytest.mark.parametrize(("size", "batch"), [(1, 32), (9, 8), (3, 1)])
def test_batches_of_one_sample_with_batchnorm(size, batch):
    """One sample has no statistics of its own in a 1×1 map: it trains with the running ones and leaves them alone."""
    inputs, labels = samples(size)
    model, spec = make("resnet8"), FlatSpec.of(make("resnet8"))
    recipe = Recipe("sgd", lr=0.1, batch_size=batch)
    trainer = LocalTrainer(make("resnet8"), recipe, Plain())
    start = spec.flatten(model)
    trainer.load(start)
    trainer.train(inputs, labels, torch_stream(0, "client"))
    row = torch.empty(spec.size)
    trainer.store(row)
    assert torch.isfinite(row).all()
    assert not torch.equal(row[: spec.num_parameters], start[: spec.num_parameters])
    plainly(model, recipe, torch.optim.SGD(model.parameters(), lr=0.1), inputs, labels, torch_stream(0, "client"))
    torch.testing.assert_close(row, spec.flatten(model), rtol=1e-3, atol=1e-4)
    if batch == 1 or size == 1:
        assert torch.equal(row[spec.num_parameters :], start[spec.num_parameters :])
        assert set(trainer.integers()) == {0}
    assert all(m.training for m in trainer.model.modules())


def test_frozen_parameters_do_not_move_and_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.flatten = nn.Flatten()
            self.first = nn.Linear(64, 64, bias=False)
            self.second = nn.Linear(64, 64, bias=False)
            self.second.weight = self.first.weight
            self.head = nn.Linear(64, 4)
            self.head.weight.requires_grad_(False)

        def forward(self, x):
            return self.head(torch.tanh(self.second(torch.tanh(self.first(self.flatten(x))))))

    with seeded(0, "tied"):
        model = Tied()
    other, head = copy.deepcopy(model), model.head.weight.clone()
    inputs, labels = samples(16)
    recipe = Recipe("sgd", lr=0.1, batch_size=8)
    trainer = LocalTrainer(model, recipe, Plain())
    trainer.load(FlatSpec.of(other).flatten(other))
    trainer.train(inputs, labels, torch_stream(0, "client"))
    trained = [p for p in other.parameters() if p.requires_grad]
    plainly(other, recipe, torch.optim.SGD(trained, lr=0.1), inputs, labels, torch_stream(0, "client"))
    assert torch.equal(model.head.weight, head)
    assert model.second.weight is model.first.weight
    torch.testing.assert_close(FlatSpec.of(model).flatten(model), FlatSpec.of(other).flatten(other))


def test_the_global_generator_is_not_used():
    inputs, labels = samples(16)
    trainer = LocalTrainer(make("mlp"), Recipe(batch_size=4), Plain())
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    trainer.train(inputs, labels, torch_stream(0, "client"))
    assert torch.equal(torch.rand(3), expected)


def test_a_convolution_on_samples_that_are_no_images():
    """Rows of 64 numbers that the model itself unflattens: nothing to lay out."""
    model = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    trainer = LocalTrainer(model, Recipe(batch_size=4), Plain())
    trainer.load(trainer.spec.flatten(model))
    inputs = Dense(torch.randn(8, 64))
    assert trainer.train(inputs, torch.zeros(8, dtype=torch.int64), torch_stream(0, "client")) == 2
