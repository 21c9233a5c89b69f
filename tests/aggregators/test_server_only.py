"""The model that the samples make without clients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from smartfl.aggregators.server_only import ServerOnly
from smartfl.types import Updates


def test_no_client_is_looked_at(world: Callable[..., object]):
    w = world()
    other = Updates.of(
        w.updates.matrix + 5.0, w.updates.num_examples, w.updates.origin, ids=w.updates.ids, spec=w.updates.spec
    )
    one, two = ServerOnly(steps=5)(w.updates, w.server()), ServerOnly(steps=5)(other, w.server())
    assert torch.equal(one.vector, two.vector)
    assert not torch.equal(one.vector, w.updates.origin)
    assert one.coefficients is not None
    assert not one.coefficients.any()


def test_one_step_by_hand(world: Callable[..., object]):
    """Adam's first step moves every parameter by the rate against the sign of its gradient."""
    w = world(samples=8)
    found = ServerOnly(steps=1, lr=0.01, batch_size=8)(w.updates, w.server()).vector
    vector = w.updates.origin.clone().requires_grad_()
    logits = w.updates.spec.functional_call(w.model, vector, w.proxy.inputs)
    (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, w.proxy.labels), vector)
    assert torch.allclose(found, w.updates.origin - 0.01 * g.sign(), atol=1e-6)


def test_it_trains_once_and_a_checkpoint_knows(world: Callable[..., object]):
    w = world()
    rule, copy = ServerOnly(steps=5), ServerOnly(steps=5)
    first = rule(w.updates, w.server()).vector
    second = Updates.of(w.updates.matrix, w.updates.num_examples, first, ids=w.updates.ids, spec=w.updates.spec)
    copy.load_state_dict(rule.state_dict())
    assert torch.equal(rule(second, w.server()).vector, first)
    assert torch.equal(copy(second, w.server()).vector, first)
