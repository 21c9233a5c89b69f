"""Clients trained at once against the same clients trained one after another."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import pytest
import torch
from torch import nn

from smartfl.clients.batched import BatchedTrainer, Plan, linear_layers, padded_batch
from smartfl.clients.bundle import Member
from smartfl.clients.choice import bundle_size, bundle_trainer
from smartfl.clients.fedprox import FedProx
from smartfl.clients.plain import Plain
from smartfl.clients.scaffold import Scaffold
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dense
from smartfl.flat import FlatSpec
from smartfl.models.convnet import convnet
from smartfl.models.logistic import logistic
from smartfl.models.mlp import mlp
from smartfl.rng import seeded, torch_stream

MODELS = {
    "logistic": lambda: logistic((1, 4, 4), 3),
    "mlp": lambda: mlp((1, 4, 4), 3, (8,)),
    "deep": lambda: mlp((1, 4, 4), 3, (9, 7)),
}
RECIPES = {
    "adam": Recipe(lr=2e-3, batch_size=8, epochs=2),
    "adam, decay": Recipe(lr=2e-3, batch_size=8, weight_decay=0.1),
    "sgd": Recipe("sgd", lr=0.05, batch_size=7, epochs=3),
    "sgd, momentum": Recipe("sgd", lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=8, epochs=2),
}
SIZES = (20, 8, 33, 9, 16)  # the last batches have 4, 8, 1, 1 and 8 samples of 8


def make(name):
    with seeded(0, "model"):
        return MODELS[name]()


def federation(sizes, seed=0):
    """Pixels as bytes, normalised on the way out, labels, and who owns which."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(sizes)
    values = torch.randint(0, 256, (count, 1, 4, 4), generator=generator, dtype=torch.uint8)
    owned = torch.randperm(count, generator=generator).split(list(sizes))
    return Dense(values, (0.4,), (0.3,)), torch.randint(0, 3, (count,), generator=generator), owned


def members_of(labels, owned, which=None):
    every = [Member(index, labels[index], torch_stream(0, "client", i)) for i, index in enumerate(owned)]
    return [every[i] for i in which] if which is not None else every


def together(name, recipe, inputs, members, algorithm=None):
    model, start = make(name), FlatSpec.of(make(name)).flatten(make(name))
    trainer = BatchedTrainer(model, recipe, algorithm or Plain(), len(members))
    rows = torch.empty(len(members), len(start))
    return rows, trainer.train(start, inputs, members, list(rows))


def apart(name, recipe, inputs, members, algorithm=None):
    algorithm = algorithm or Plain()
    trainer = LocalTrainer(make(name), recipe, algorithm)
    start = FlatSpec.of(make(name)).flatten(make(name))
    rows, steps = torch.empty(len(members), len(start)), []
    for row, member in zip(rows, members, strict=True):
        trainer.load(start)
        algorithm.begin(trainer.parameters, recipe.new_optimizer(), None, None)
        samples = inputs.take(member.index) if member.inputs is None else member.inputs
        steps.append(trainer.train(samples, member.labels, member.generator))
        trainer.store(row)
    return rows, steps


def assert_alike(found, expected):
    assert found[1] == expected[1]
    errors = (found[0] - expected[0]).norm(dim=1) / expected[0].norm(dim=1)
    assert errors.max() < 1e-6


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MODELS)
def test_at_once_is_one_after_another(name, recipe):
    inputs, labels, owned = federation(SIZES)
    settings = RECIPES[recipe]
    found = together(name, settings, inputs, members_of(labels, owned))
    expected = apart(name, settings, inputs, members_of(labels, owned))
    assert_alike(found, expected)
    assert found[1] == [settings.epochs * -(-size // settings.batch_size) for size in SIZES]


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_pull_of_fedprox_acts_on_every_member(decoupled):
    inputs, labels, owned = federation(SIZES)
    recipe, strong = Recipe("sgd", lr=0.05, batch_size=8, epochs=2), FedProx(mu=1.0, decoupled=decoupled)
    found = together("mlp", recipe, inputs, members_of(labels, owned), strong)
    assert_alike(found, apart("mlp", recipe, inputs, members_of(labels, owned), strong))
    plain, _ = together("mlp", recipe, inputs, members_of(labels, owned))
    assert ((found[0] - plain).norm(dim=1) > 1e-3).all()


def test_members_with_samples_and_labels_of_their_own():
    """A backdoor changes the samples of members 1 and 2; the others see the federation's."""
    inputs, labels, owned = federation(SIZES)
    recipe = RECIPES["adam"]

    def members():
        honest = members_of(labels, owned)
        for i in (1, 2):
            flipped = Dense(255 - inputs.values[owned[i]], inputs.mean, inputs.std)
            honest[i] = Member(owned[i], (honest[i].labels + 1) % 3, honest[i].generator, flipped)
        return honest

    found = together("mlp", recipe, inputs, members())
    assert_alike(found, apart("mlp", recipe, inputs, members()))
    plain, _ = together("mlp", recipe, inputs, members_of(labels, owned))
    assert [torch.equal(a, b) for a, b in zip(found[0], plain, strict=True)] == [True, False, False, True, True]


@pytest.mark.parametrize("sizes", [(20, 8, 33, 9, 16), (3, 4, 3, 4), (1, 1, 1), (2, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_a_members_bits_do_not_depend_on_its_company(name, sizes):
    inputs, labels, owned = federation(sizes)
    recipe = RECIPES["adam"]
    whole, steps = together(name, recipe, inputs, members_of(labels, owned))
    for which in ([0], [1], [len(sizes) - 1, 0], list(reversed(range(len(sizes))))):
        part, counts = together(name, recipe, inputs, members_of(labels, owned, which))
        assert counts == [steps[i] for i in which]
        assert torch.equal(part, whole[which])


def test_two_members_by_hand():
    """One feature, two classes, W = b = 0, SGD with lr 1, batches of 2.

    Member 0 has three samples x = 2, y = 0.  First batch: d = (−½, ½), so W = (1, −1), b = (½, −½).  Second batch, of
    one sample: z = ±2.5, q = σ(−5), d = (−q, q), so W = ±(1 + 2q), b = ±(½ + q).  Member 1 has one batch of two samples
    x = 1, y = 1: d = (½, −½), so W = (−½, ½), b = (−½, ½).
    """
    inputs = Dense(torch.tensor([[1.0], [2.0], [1.0], [2.0], [2.0]]))
    members = [
        Member(torch.tensor([1, 3, 4]), torch.tensor([0, 0, 0]), torch_stream(0, "a")),
        Member(torch.tensor([0, 2]), torch.tensor([1, 1]), torch_stream(0, "b")),
    ]
    rows = torch.empty(2, 4)
    trainer = BatchedTrainer(logistic((1,), 2), Recipe("sgd", lr=1.0, batch_size=2), Plain(), 2)
    assert trainer.train(torch.zeros(4), inputs, members, list(rows)) == [2, 1]
    q = 1 / (1 + exp(5))
    assert rows[0].tolist() == pytest.approx([1 + 2 * q, -1 - 2 * q, 0.5 + q, -0.5 - q])
    assert rows[1].tolist() == pytest.approx([-0.5, 0.5, -0.5, 0.5])


def test_the_plan_is_every_members_own_permutations():
    """Sizes 5 and 3, batches of 4, two epochs: 4 and 2 steps; every epoch begins a batch; 1/|batch| or 0."""
    members = [
        Member(torch.arange(5) + 10, torch.arange(5), torch_stream(0, "a")),
        Member(torch.arange(3) + 20, torch.arange(3), torch_stream(0, "b")),
    ]
    plan = Plan.of(members, Recipe(batch_size=4, epochs=2))
    assert plan.steps == [4, 2]
    for name, first, size, place in (("a", 10, 5, 0), ("b", 20, 3, 1)):
        stream = torch_stream(0, name)
        for epoch in range(2):
            order = torch.randperm(size, generator=stream)
            for number, batch in enumerate(order.split(4)):
                step = epoch * -(-size // 4) + number
                assert torch.equal(plan.index[place, step, : len(batch)], batch + first)
                assert torch.equal(plan.labels[place, step, : len(batch)], batch)
                weights = [1 / len(batch)] * len(batch) + [0] * (4 - len(batch))
                assert plan.weights[place, step].tolist() == pytest.approx(weights)
                assert set(plan.index[place, step].tolist()) <= set(range(first, first + size))
                assert torch.equal(plan.own_rows(place, step, size), batch)
    assert plan.weights[1, 2:].abs().sum() == 0


@pytest.mark.parametrize(("samples", "width"), [(1, 1), (2, 2), (3, 4), (5, 8), (20, 24), (24, 24), (1000, 24)])
def test_the_padded_batch_is_the_clients_own_affair(samples, width):
    assert padded_batch(samples, batch_size=24) == width


def test_the_stack_forgets_the_last_bundle():
    inputs, labels, owned = federation(SIZES)
    trainer = BatchedTrainer(make("mlp"), RECIPES["adam"], Plain(), 5)
    start = FlatSpec.of(make("mlp")).flatten(make("mlp"))
    first, second = torch.empty(5, len(start)), torch.empty(2, len(start))
    trainer.train(start, inputs, members_of(labels, owned), list(first))
    trainer.train(start, inputs, members_of(labels, owned, [2, 3]), list(second))
    assert torch.equal(second, first[[2, 3]])


def test_a_member_with_broken_samples_spoils_itself_only():
    """Member 1 owns row 0 of the federation, which is NaN; the others' padding must not touch it."""
    inputs = Dense(torch.randn(10, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    inputs.values[0] = torch.nan
    owned = [torch.arange(4, 10), torch.arange(0, 4)]
    rows, _ = together("mlp", Recipe(batch_size=4), inputs, members_of(torch.zeros(10, dtype=torch.int64), owned))
    assert torch.isfinite(rows).all(dim=1).tolist() == [True, False]


def test_only_plain_stacks_of_linear_layers_are_recognised():
    assert [len(linear_layers(make(name))) for name in MODELS] == [1, 2, 3]
    shared = nn.Linear(4, 4)
    frozen = mlp((4,), 3)
    frozen[1].weight.requires_grad_(False)
    others = [
        convnet((1, 8, 8), 3),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)),
        nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.ReLU()),
        nn.Sequential(nn.Flatten()),
        nn.Linear(4, 3),
        frozen,
        mlp((4,), 3).double(),
    ]
    assert [linear_layers(model) for model in others] == [[]] * len(others)


@dataclass
class Other(Plain):
    """A client algorithm that changes a hook and says nothing of stacks."""


def test_the_rule_who_is_bundled():
    """2¹⁸ parameters and 32 clients at most: 32 of 650, 5 of 50,890, 1 of 407,050 parameters."""
    dense = Dense(torch.zeros(1, 1, 28, 28))

    def size(model, recipe=None, algorithm=None, device="cpu", inputs=dense):
        recipe, algorithm = recipe or Recipe(), algorithm or Plain()
        count = bundle_size(model, recipe, algorithm, inputs, device)
        assert (bundle_trainer(model, recipe, algorithm, inputs, device) is None) == (count == 0)
        return count

    assert size(logistic((1, 8, 8), 10)) == size(mlp((1, 8, 8), 10), algorithm=FedProx()) == 32
    assert size(mlp((1, 28, 28), 10)) == 5
    assert size(mlp((1, 28, 28), 10, (512,))) == 1
    assert size(convnet((1, 28, 28), 10)) == 0
    assert size(logistic((1, 8, 8), 10), Recipe(augment=True)) == 0
    assert size(logistic((1, 8, 8), 10), device="cuda") == 0
    assert size(logistic((1, 8, 8), 10), algorithm=Scaffold()) == 0
    assert size(logistic((1, 8, 8), 10), algorithm=Other()) == 0
