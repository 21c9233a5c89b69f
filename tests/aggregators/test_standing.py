"""The standing model against the module itself: outputs, gradients, ties, frozen parts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smartfl.aggregators.standing import StandingModel
from smartfl.flat import FlatSpec


class Tied(nn.Module):
    """One matrix used twice, a frozen scale and a float buffer that is no statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.tensor(2.0, dtype=torch.float64), requires_grad=False)
        self.register_buffer("shift", torch.full((4,), 0.5))

    def forward(self, x):
        return self.frozen * self.second(torch.tanh(self.first(x))) + self.shift


def small_cnn():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.Flatten(), nn.Linear(12, 3))


@pytest.mark.parametrize(("make", "shape"), [(small_cnn, (5, 2, 5, 5)), (Tied, (5, 4))])
def test_outputs_and_gradients_are_the_modules_own(make, shape):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = make().double().eval(), torch.randn(*shape, dtype=torch.float64)
    spec = FlatSpec.of(model)
    labels = torch.tensor([0, 1, 2, 1, 0])
    standing = StandingModel(model, spec, "mixed", torch.float64, torch.device("cpu"))
    vector = spec.flatten(model) + 0.1
    for attempt in range(2):  # the second call must not see the first one's gradient
        standing.settle(vector)
        outputs = standing(inputs)
        g = standing.gradient(F.cross_entropy(outputs, labels))
        leaf = vector.clone().requires_grad_()
        expected = spec.functional_call(model, leaf, inputs)
        (oracle,) = torch.autograd.grad(F.cross_entropy(expected, labels), leaf)
        torch.testing.assert_close(outputs, expected)
        torch.testing.assert_close(g, oracle)
        vector = vector - 0.3 * (attempt + 1) * oracle


def test_statistics_of_instance_norm_have_no_gradient_and_everything_else_has_its_own():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).double().eval()
        inputs = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    spec = FlatSpec.of(model)
    standing = StandingModel(model, spec, "reestimate", torch.float64, torch.device("cpu"))
    vector = spec.flatten(model) + 0.1
    standing.settle(vector)
    g = standing.gradient(standing(inputs).square().sum())
    spec.load(model, vector)
    model(inputs).square().sum().backward()
    torch.testing.assert_close(g[: spec.num_parameters], torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert g[spec.num_parameters :].count_nonzero() == 0


def test_kernels_lie_channels_last_and_the_model_keeps_its_own_tensors():
    model = small_cnn()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    standing = StandingModel(model, FlatSpec.of(model), "mixed", torch.float32, torch.device("cpu"))
    standing.settle(torch.ones(FlatSpec.of(model).size))
    assert standing.module[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert standing.module[4].weight.data_ptr() >= standing.vector.data_ptr()
    assert float(standing.module[2].weight.detach().min()) == 1
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_a_vector_written_in_place_counts_from_the_next_settling_on():
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False))
    standing = StandingModel(model, FlatSpec.of(model), "mixed", torch.float32, torch.device("cpu"))
    standing.vector.fill_(3.0)
    standing.settle()
    assert standing(torch.ones(1, 1, 1, 1)).item() == 3
