"""Logistic regression on sparse rows against the same rows made dense."""

from __future__ import annotations

import pytest
import torch

from smartfl.clients.bundle import Member
from smartfl.clients.choice import bundle_size, bundle_trainer
from smartfl.clients.fedprox import FedProx
from smartfl.clients.plain import Plain
from smartfl.clients.sparse import SparseTrainer
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Sparse
from smartfl.flat import FlatSpec
from smartfl.models.logistic import logistic
from smartfl.models.mlp import mlp
from smartfl.rng import seeded, torch_stream

WIDTH, CLASSES, SIZES = 50, 4, (20, 8, 1)


def make():
    with seeded(0, "model"):
        return logistic((WIDTH,), CLASSES)


@pytest.fixture
def rows():
    """29 rows with 0 to 6 of 50 entries; the first has none."""
    generator = torch.Generator().manual_seed(0)
    count = sum(SIZES)
    lengths = torch.randint(0, 7, (count,), generator=generator)
    lengths[0] = 0
    columns = torch.cat([torch.randperm(WIDTH, generator=generator)[:n] for n in lengths.tolist()])
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    values = torch.rand(len(columns), generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return Sparse(starts, columns.to(torch.int32), values, WIDTH), labels


def members(labels, changed=None):
    found = []
    for i, index in enumerate(torch.arange(sum(SIZES)).split(SIZES)):
        inputs = None if i else changed
        found.append(Member(index, (labels[index] + i) % CLASSES, torch_stream(0, "client", i), inputs))
    return found


RECIPES = [
    Recipe(lr=1e-2, batch_size=8, epochs=2),
    Recipe("sgd", lr=0.5, batch_size=7, momentum=0.9, weight_decay=0.1, epochs=2),
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algorithm", [Plain(), FedProx(mu=0.5), FedProx(mu=0.5, decoupled=True)])
@pytest.mark.parametrize("poisoned", [False, True])
def test_it_is_local_training_on_dense_batches(rows, recipe, algorithm, poisoned):
    inputs, labels = rows
    changed = inputs.take(torch.arange(19, -1, -1)) if poisoned else None
    start = FlatSpec.of(make()).flatten(make())
    found = torch.empty(len(SIZES), len(start))
    steps = SparseTrainer(make(), recipe, algorithm).train(start, inputs, members(labels, changed), list(found))
    trainer = LocalTrainer(make(), recipe, algorithm)
    for i, member in enumerate(members(labels, changed)):
        trainer.load(start)
        algorithm.begin(trainer.parameters, recipe.new_optimizer(), None, None)
        own = inputs.take(member.index) if member.inputs is None else member.inputs
        assert trainer.train(own, member.labels, member.generator) == steps[i]
        row = torch.empty(len(start))
        trainer.store(row)
        assert float((found[i] - row).norm() / row.norm()) < 1e-6
        assert float((row - start).norm()) > 1e-3


def test_one_step_by_hand():
    """W = b = 0, two classes: x = (0, 3), y = 1 gives d = (½, −½); SGD with lr 1 makes W₀ = (0, −1.5), b = (−½, ½)."""
    inputs = Sparse(torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32), torch.tensor([3.0]), 2)
    member = Member(torch.tensor([0]), torch.tensor([1]), torch_stream(0, "client"))
    row = torch.empty(6)
    trainer = SparseTrainer(logistic((2,), 2), Recipe("sgd", lr=1.0), Plain())
    assert trainer.train(torch.zeros(6), inputs, [member], [row]) == [1]
    assert row.tolist() == pytest.approx([0, -1.5, 0, 1.5, -0.5, 0.5])


def test_only_one_layer_is_trained_on_sparse_rows(rows):
    inputs, _ = rows
    assert isinstance(bundle_trainer(make(), Recipe(), Plain(), inputs, "cpu"), SparseTrainer)
    assert bundle_size(mlp((WIDTH,), CLASSES), Recipe(), Plain(), inputs, "cpu") == 0
