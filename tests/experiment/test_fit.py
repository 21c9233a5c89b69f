"""What does not fit together is told before a run exists, not by a worker in round 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from smartfl.errors import UserError
from smartfl.simulation import Simulation

BACKDOOR = {"name": "backdoor", "rate": 0.5}


class Narrow(nn.Sequential):
    """Takes 63 pixels where the digits have 64."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(63, 10))


class FewClasses(nn.Sequential):
    """Knows 5 classes where the digits have 10."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 5))


class Pair(nn.Module):
    """Returns logits and features."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)), x


class Moody(nn.Module):
    """Draws from the global generator even in eval mode."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)) + torch.rand(10)


def no_module() -> int:
    return 3


ANSWER = 42


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": {"name": f"{__name__}:Narrow"}}, r"^model\.name = '.*:Narrow' does not accept .* \(1, 8, 8\): mat1"),
        ({"model": {"name": f"{__name__}:FewClasses"}}, r"^model\.name = '.*' must return .*\(2, 10\).* got \(2, 5\)$"),
        ({"model": {"name": f"{__name__}:Pair"}}, r"^model\.name = '.*:Pair' must return .*got tuple$"),
        (
            {"model": {"name": f"{__name__}:no_module"}},
            r"^model\.name = '.*' must make a torch\.nn\.Module, got a int$",
        ),
        (
            {"model": {"name": f"{__name__}:ANSWER"}},
            r"^model\.name = '.*:ANSWER' is no class or function but of type int$",
        ),
        ({"attack": BACKDOOR | {"target": 10}}, r"^attack\.target = 10 must be below the number of classes, 10$"),
    ],
)
def test_what_does_not_fit_is_the_users_mistake(tiny, change, sentence):
    with pytest.raises(UserError, match=sentence):
        Simulation(tiny(**change), executor="serial")


def test_flat_samples_cannot_be_cropped(tiny, tmp_path):
    path = tmp_path / "flat.npz"
    np.savez(path, x_train=np.eye(64, 12), y_train=np.arange(64) % 2)
    data = {"dataset": "arrays", "options": {"path": str(path)}, "proxy": {"size": 0}}
    Simulation(tiny(data=data), executor="serial")
    with pytest.raises(UserError, match=r"^data\.augment = true .*'arrays' have shape \(12,\)$"):
        Simulation(tiny(data=data | {"augment": True}), executor="serial")


def test_asking_leaves_models_and_generators_alone(tiny):
    """Two samples through BatchNorm in eval mode change no statistic, and draws are put back."""
    experiment = tiny(model=[{"name": "resnet8"}, {"name": f"{__name__}:Moody"}])
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    simulation = Simulation(experiment, executor="serial")
    assert torch.equal(torch.rand(2), expected)
    assert all(b.max() == b.min() for name, b in simulation.models[0].named_buffers() if "running" in name)
