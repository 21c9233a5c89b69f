import pytest
import torch

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.mobilenet import mobilenet
from smartfl.rng import seeded


@pytest.mark.parametrize(
    ("version", "classes", "count"),
    [("v1", 10, 3_217_226), ("v1", 100, 3_309_476), ("v2", 10, 2_296_922), ("v2", 100, 2_412_212)],
)
def test_parameter_count(version: str, classes: int, count: int) -> None:
    assert FlatSpec.of(mobilenet((3, 32, 32), classes, version=version)).num_parameters == count  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("norm", "shape"), [("batch", (3, 32, 32)), ("group", (1, 28, 28)), ("none", (3, 28, 28)), ("batch", (1, 8, 8))]
)
def test_runs_forward_and_backward_and_eval_with_one_image(version: str, norm: str, shape: tuple[int, ...]) -> None:
    context = {"input_shape": shape, "num_classes": 10}
    with seeded(0):
        model = registry.build("models", "mobilenet", {"version": version, "norm": norm}, "model", context)
        logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 10)
    assert 0.01 < logits.std() < 5
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.eval()(torch.ones(1, *shape)).shape == (1, 10)


@pytest.mark.parametrize(("version", "side"), [("v1", 2), ("v2", 4)])
def test_the_last_map_of_a_32_pixel_image(version: str, side: int) -> None:
    """v1 halves four times, 32/16 = 2; v2 three times, 32/8 = 4."""
    model = mobilenet((3, 32, 32), 10, version=version)  # type: ignore[arg-type]
    assert model[:-3].eval()(torch.ones(1, 3, 32, 32)).shape[2:] == (side, side)


def test_text_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"model\.name = 'mobilenet' needs images"):
        mobilenet((5000,), 20)
