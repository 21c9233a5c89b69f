"""The gradient by tiles against autograd through torch's convolutions and pools."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from smartfl.clients.plain import Plain
from smartfl.clients.tiled import TiledConvNet
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.models.convnet import convnet
from smartfl.models.resnet import resnet8
from smartfl.rng import seeded

# Odd sides, maps with an odd side between the pools, padding (sides below 16), several channels.
SHAPES = [(1, 28, 28), (3, 32, 32), (1, 17, 19), (2, 18, 20), (1, 8, 8), (1, 4, 4), (2, 5, 7), (1, 13, 11)]


def trainer_for(shape, variant="small"):
    with seeded(0, "model"):
        model = convnet(shape, 4, variant)
    trainer = LocalTrainer(model, Recipe(), Plain())
    generator = torch.Generator().manual_seed(1)
    trainer.load(torch.randn(trainer.spec.size, generator=generator) * 0.2)
    return trainer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("samples", [1, 5])
def test_it_is_the_gradient(shape, samples):
    """Half of every image is black: there the four values of a pool are equal, and only the first may pass one on."""
    trainer = trainer_for(shape)
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(samples, *shape, generator=generator)
    images[..., : shape[2] // 2] = 0
    labels = torch.randint(0, 4, (samples,), generator=generator)
    F.cross_entropy(trainer.model(trainer.laid_out(images)), labels).backward()
    expected = trainer.gradient.clone()
    trainer.gradient.fill_(torch.nan)
    tiled = TiledConvNet.of(trainer.model, "cpu")
    tiled.backward(images, labels)
    for e in trainer.spec.parameters:
        found, wanted = trainer.gradient[e.start : e.stop], expected[e.start : e.stop]
        assert float((found - wanted).norm()) <= 1e-5 * float(wanted.norm()) + 1e-9, e.name


def test_of_equal_values_the_first_passes_the_gradient_on():
    """A black image: every output of conv1 is its bias, so ∂b is one per pool and ∂W is 0."""
    trainer = trainer_for((1, 28, 28))
    labels = torch.tensor([2])
    F.cross_entropy(trainer.model(torch.zeros(1, 1, 28, 28)), labels).backward()
    expected = trainer.gradient.clone()
    TiledConvNet.of(trainer.model, "cpu").backward(torch.zeros(1, 1, 28, 28), labels)
    torch.testing.assert_close(trainer.gradient, expected, rtol=1e-4, atol=1e-7)
    assert float(trainer.model.conv1.weight.grad.abs().max()) == 0
    assert float(trainer.model.conv1.bias.grad.abs().max()) > 0


def test_only_small_convnets_on_a_cpu_are_tiled():
    assert TiledConvNet.of(trainer_for((1, 28, 28)).model, "cpu") is not None
    assert TiledConvNet.of(trainer_for((1, 28, 28)).model, "cuda") is None
    assert TiledConvNet.of(convnet((1, 28, 28), 4, "mcmahan"), "cpu") is None
    assert TiledConvNet.of(resnet8((1, 28, 28), 4), "cpu") is None
    frozen = convnet((1, 28, 28), 4)
    frozen.conv1.weight.requires_grad_(False)
    assert TiledConvNet.of(frozen, "cpu") is None
