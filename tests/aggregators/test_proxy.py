from __future__ import annotations

import pytest
import torch

from smartfl.aggregators.proxy import (
    client_logits,
    fedavg_start,
    finite_clients,
    minibatches,
    require_proxy,
    weights_among,
)
from smartfl.errors import UserError
from smartfl.types import Proxy, Server, Updates


def test_minibatches_cover_every_sample_once_an_epoch_and_keep_the_short_batch():
    batches = list(minibatches(10, 4, 2, torch.Generator().manual_seed(0)))
    assert [len(b) for b in batches] == [4, 4, 2, 4, 4, 2]
    first, second = torch.cat(batches[:3]), torch.cat(batches[3:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()


def test_minibatches_of_fewer_samples_than_a_batch_are_one_batch():
    assert [len(b) for b in minibatches(3, 32, 1, torch.Generator())] == [3]


def test_client_logits_are_those_of_each_loaded_model(world):
    w = world(batchnorm=True)
    logits = client_logits(w.updates, w.model, w.proxy.inputs)
    for row, expected in zip(w.updates.matrix, logits, strict=True):
        w.updates.spec.load(w.model, row)
        w.model.eval()
        torch.testing.assert_close(w.model(w.proxy.inputs), expected)


def test_client_logits_do_not_depend_on_chunks(world, monkeypatch):
    w = world(batchnorm=True)
    whole = client_logits(w.updates, w.model, w.proxy.inputs)
    monkeypatch.setattr("smartfl.aggregators.proxy.CHUNK", 5)
    torch.testing.assert_close(client_logits(w.updates, w.model, w.proxy.inputs), whole)


def test_a_missing_part_of_the_server_is_the_users_mistake(world):
    w = world()
    empty = Proxy(w.proxy.inputs[:0], w.proxy.labels[:0], 3)
    for server in (None, Server(), Server(model=w.model), Server(proxy=w.proxy), w.server(proxy=empty)):
        with pytest.raises(UserError, match=r"data\.proxy\.size"):
            require_proxy(object(), server, labelled=False)
    with pytest.raises(UserError, match="labelled"):
        require_proxy(object(), w.unlabelled(), labelled=True)


def test_an_overflowing_client_is_named_and_left_out():
    updates = Updates.of(torch.zeros(3, 2), [1, 2, 3], ids=[4, 6, 9])
    logits = torch.zeros(3, 5, 2)
    logits[1, 3, 0] = torch.inf
    keep, events = finite_clients(updates, logits)
    assert keep.tolist() == [True, False, True]
    assert "6" in events[0]
    assert weights_among(updates, keep).tolist() == [0.25, 0, 0.75]
    assert torch.equal(weights_among(updates, torch.ones(3, dtype=torch.bool)), updates.weights)


def test_the_start_is_fedavg_unless_it_overflows(world):
    w = world()
    start, p, events = fedavg_start(w.updates, w.model, w.proxy.inputs)
    assert torch.equal(start, w.updates.mix(w.updates.weights))
    assert torch.equal(p, w.updates.weights)
    assert events == ()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    start, p, events = fedavg_start(huge, w.model, w.proxy.inputs)
    torch.testing.assert_close(start, w.updates.mix(w.updates.weights))
    assert p[-1] == 0
    assert "9" in events[0]


def test_with_nobody_left_the_start_is_the_global_model(world):
    w = world()
    hopeless = Updates.of(torch.full((2, w.updates.spec.size), 3e38), origin=w.updates.origin, spec=w.updates.spec)
    start, p, events = fedavg_start(hopeless, w.model, w.proxy.inputs)
    assert torch.equal(start, w.updates.origin)
    assert p.tolist() == [0, 0]
    assert len(events) == 2
