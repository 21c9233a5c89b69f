"""The flat optimisers are torch's, bit for bit."""

import pytest
import torch

from smartfl.optimizers import FlatAdam, FlatSGD


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_equals_torch(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(1000, generator=generator)
    theirs = torch.nn.Parameter(w.clone())
    reference = torch.optim.Adam([theirs], lr=1e-2, weight_decay=decay, fused=True)
    ours = FlatAdam(1e-2, decay)
    for _ in range(20):
        gradient = torch.randn(1000, generator=generator)
        theirs.grad = gradient.clone()
        reference.step()
        ours.step(w, gradient)
    assert torch.equal(w, theirs.data)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.1)])
def test_sgd_equals_torch(momentum: float, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(1000, generator=generator)
    theirs = torch.nn.Parameter(w.clone())
    reference = torch.optim.SGD([theirs], lr=1e-2, momentum=momentum, weight_decay=decay, fused=True)
    ours = FlatSGD(1e-2, momentum, decay)
    for _ in range(20):
        gradient = torch.randn(1000, generator=generator)
        theirs.grad = gradient.clone()
        reference.step()
        ours.step(w, gradient)
    assert torch.equal(w, theirs.data)


def test_adam_by_hand() -> None:
    """First step: m = 0.1 g, v = 0.001 g², both bias-corrected to g and g², so w moves by lr·g/(|g| + eps) = lr."""
    w = torch.tensor([0.5, 0.5], dtype=torch.float64)
    FlatAdam(0.01).step(w, torch.tensor([0.1, -0.1], dtype=torch.float64))
    assert w.tolist() == pytest.approx([0.49, 0.51], abs=1e-8)
