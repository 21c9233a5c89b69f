"""Algorithm 1 to the letter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from smartfl.aggregators.smartfl import SmartFL
from smartfl.aggregators.smartfl_literal import SmartFLLiteral
from smartfl.aggregators.smartfl_unlabelled import SmartFLUnlabelled
from smartfl.aggregators.smartfl_unlabelled_literal import SmartFLUnlabelledLiteral
from smartfl.simplex import project_simplex


def test_two_steps_as_algorithm_1_has_them(world: Callable[..., object]):
    """With torch.optim.Adam on p, autograd through Σ p_i w_i, and a projection after each mini-batch."""
    w = world(samples=8)
    found = SmartFLLiteral(server_epochs=2, batch_size=8)(w.updates, w.server())
    p = w.updates.weights.clone().requires_grad_()
    adam = torch.optim.Adam([p], lr=1e-2)
    for _ in range(2):
        mixed = (p @ w.updates.matrix.to(torch.float64)).to(torch.float32)
        loss = F.cross_entropy(w.updates.spec.functional_call(w.model, mixed, w.proxy.inputs), w.proxy.labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            p.copy_(project_simplex(p.detach()))
    assert found.coefficients is not None
    assert found.coefficients.tolist() == pytest.approx(p.tolist(), abs=1e-5)


@pytest.mark.parametrize("batchnorm", [False, True])
def test_the_same_bits_as_the_old_variants(world: Callable[..., object], batchnorm: bool):
    """Records of ``smartfl`` with ``variant = "literal"`` are records of these rules."""
    w = world(batchnorm=batchnorm)
    old, new = SmartFL(variant="literal", batchnorm="mixed"), SmartFLLiteral()
    assert torch.equal(old(w.updates, w.server()).vector, new(w.updates, w.server()).vector)
    soft, letter = SmartFLUnlabelled(variant="literal"), SmartFLUnlabelledLiteral()
    assert torch.equal(soft(w.updates, w.unlabelled()).vector, letter(w.updates, w.unlabelled()).vector)


def test_a_row_that_overflows_has_no_weight(world: Callable[..., object]):
    w = world()
    found = SmartFLLiteral()(w.with_row(99, torch.full_like(w.updates.origin, 3e38)), w.server())
    assert torch.isfinite(found.vector).all()
    assert found.coefficients is not None
    assert found.coefficients[-1] == 0
