"""A federation of two kinds of honest clients."""

from __future__ import annotations

import torch

from smartfl.data.dataset import Dataset, Dense
from smartfl.data.federation import Federation, Shards
from smartfl.types import Proxy


def test_one_kind_is_changed_wherever_it_is_and_the_other_nowhere(script):
    """Eighty clients of one image each; a quarter of them, of the server's samples and of the test set is inverted."""
    kinds = script("kinds")
    images = torch.rand(80, 1, 2, 2, generator=torch.Generator().manual_seed(0)) / 4
    labels = torch.arange(80) % 3
    dataset = Dataset("two kinds", Dense(images), labels, Dense(images), labels, num_classes=3)
    shards = Shards(torch.arange(80), torch.arange(81))
    proxy = Proxy(images, labels, 3)
    changed, who, tested = kinds.two_kinds(Federation(dataset, shards, proxy, frozenset()), 0.25, kinds.inverted)
    assert len(who) == 20
    assert torch.equal(
        changed.dataset.train.values > 0.5,
        torch.tensor([i in who for i in range(80)])[:, None, None, None].expand(80, 1, 2, 2),
    )
    assert torch.equal(changed.dataset.test.values, torch.where(tested[:, None, None, None], 1 - images, images))
    mine = (changed.proxy.inputs > 0.5).flatten(1).all(dim=1)
    assert 0 < int(mine.sum()) < 80
    assert torch.equal(changed.proxy.inputs, torch.where(mine[:, None, None, None], 1 - images, images))
    assert 0 < int(tested.sum()) < 80


def test_shuffling_is_one_permutation_for_all(script):
    images = torch.arange(8.0).view(2, 1, 2, 2)
    first, second = script("kinds").shuffled(images)
    assert sorted(first.flatten().tolist()) == [0, 1, 2, 3]
    assert torch.equal(second, first + 4)
    assert not torch.equal(first, images[0])


def test_a_line_of_the_table(script):
    line = {"alpha": 1.0, "kind": "inverted", "share": 0.2, "rule": "SmartFL", "first": 0.89, "second": 0.0}
    found = script("kinds").table([line | {"weight": 0.149, "accused": [1, 16]}]).splitlines()[2]
    assert found == "| 1 | inverted | 0.2 | SmartFL | 89.0 | 0.0 | 14.9 | 1, 16 |"
