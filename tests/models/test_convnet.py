import pytest
import torch
from torch.nn import functional as F

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.convnet import convnet


def test_small_has_21840_parameters_on_mnist() -> None:
    """260 + 5,020 + (320·50 + 50) + (50·10 + 10) = 21,840."""
    assert FlatSpec.of(convnet((1, 28, 28), 10)).size == 21_840


def test_mcmahan_has_1663370_parameters_on_mnist() -> None:
    """832 + 51,264 + (3,136·512 + 512) + (512·10 + 10) = 1,663,370."""
    assert FlatSpec.of(convnet((1, 28, 28), 10, variant="mcmahan")).size == 1_663_370


@pytest.mark.parametrize("variant", ["small", "mcmahan"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 15, 20), (2, 4, 4)])
def test_runs_forward_and_backward_and_eval_with_one_image(variant: str, shape: tuple[int, ...]) -> None:
    model = registry.build("models", "convnet", {"variant": variant}, "model", {"input_shape": shape, "num_classes": 7})
    logits = model(torch.randn(5, *shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (5, 7)
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.eval()(torch.ones(1, *shape)).shape == (1, 7)


def test_small_is_the_layers_that_the_docstring_says() -> None:
    model = convnet((1, 28, 28), 10)
    s = model.state_dict()
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    a = F.max_pool2d(F.relu(F.conv2d(x, s["conv1.weight"], s["conv1.bias"])), 2)
    b = F.max_pool2d(F.relu(F.conv2d(a, s["conv2.weight"], s["conv2.bias"])), 2).reshape(2, 320)
    c = F.relu(b @ s["fc1.weight"].T + s["fc1.bias"])
    torch.testing.assert_close(model(x), c @ s["fc2.weight"].T + s["fc2.bias"])


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 3, 28)])
def test_anything_but_an_image_is_refused_by_name(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"model\.name = 'convnet' needs images"):
        convnet(shape, 10)


def test_an_unknown_variant_names_the_setting() -> None:
    context = {"input_shape": (1, 28, 28), "num_classes": 10}
    with pytest.raises(UserError, match=r"model\.variant"):
        registry.build("models", "convnet", {"variant": "large"}, "model", context)
