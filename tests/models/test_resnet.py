from math import sqrt

import pytest
import torch
from torch import nn

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.resnet import resnet8
from smartfl.rng import seeded


@pytest.mark.parametrize(
    ("shape", "classes", "count"), [((3, 32, 32), 10, 78_042), ((3, 32, 32), 100, 83_892), ((1, 28, 28), 10, 77_754)]
)
def test_parameter_count(shape: tuple[int, ...], classes: int, count: int) -> None:
    assert FlatSpec.of(resnet8(shape, classes)).num_parameters == count


def test_the_wide_one_of_fedaux() -> None:
    """3·64·9 + 2·64 and four blocks of 9·in·out + 9·out² + in·out (projections) weights, 2 per normalised channel."""
    blocks = 2 * 9 * 64**2 + sum(9 * n * 2 * n + 9 * (2 * n) ** 2 + 2 * n**2 for n in (64, 128, 256))
    norms = 2 * (64 + 2 * 64 + 3 * (128 + 256 + 512))
    spec = FlatSpec.of(resnet8((3, 32, 32), 10, width=64, stages=4))
    assert spec.num_parameters == 27 * 64 + blocks + norms + 513 * 10 == 4_903_242


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"width = 0 and stages = 3"):
        resnet8((3, 32, 32), 10, width=0)


def test_nine_batchnorm_layers_with_672_statistics() -> None:
    spec = FlatSpec.of(resnet8((3, 32, 32), 10))
    assert (spec.size - spec.num_parameters, len(spec.integers)) == (672, 9)


def test_group_norm_has_no_statistics_and_as_many_parameters() -> None:
    spec = FlatSpec.of(resnet8((3, 32, 32), 10, norm="group", groups=8))
    assert (spec.num_parameters, spec.size) == (78_042, 78_042)


def test_no_norm_trades_a_scale_and_a_shift_for_a_bias() -> None:
    """336 channels are normalised: 78,042 − 336."""
    assert FlatSpec.of(resnet8((3, 32, 32), 10, norm="none")).size == 77_706


def test_feddf_initialisation() -> None:
    """std √(2/(9 · 64)) for the 3×3 convolutions to 64 channels; γ = 1 and β = 0."""
    with seeded(0):
        model = resnet8((3, 32, 32), 10)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 5_000:
            std = sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels))
            assert layer.weight.std().item() == pytest.approx(std, rel=0.05)
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.weight.eq(1).all()
            assert layer.bias.eq(0).all()


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("init", ["feddf", "pytorch"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8)])
def test_runs_forward_and_backward_and_eval_with_one_image(norm: str, init: str, shape: tuple[int, ...]) -> None:
    context = {"input_shape": shape, "num_classes": 10}
    with seeded(1):
        model = registry.build("models", "resnet8", {"norm": norm, "init": init}, "model", context)
        logits = model(torch.randn(4, *shape))
    assert logits.shape == (4, 10)
    assert 0.02 < logits.std() < 5
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.eval()(torch.ones(1, *shape)).shape == (1, 10)


def test_text_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"model\.name = 'resnet8' needs images"):
        resnet8((5000,), 20)


def test_an_unknown_norm_names_the_setting() -> None:
    with pytest.raises(UserError, match=r"model\.norm"):
        registry.build("models", "resnet8", {"norm": "layer"}, "model", {"input_shape": (3, 32, 32), "num_classes": 10})
