import pytest
import torch

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.shufflenet import shuffle, shufflenet
from smartfl.rng import seeded


@pytest.mark.parametrize(
    ("width", "classes", "count"), [(1.0, 10, 1_263_854), (1.0, 100, 1_356_104), (0.5, 10, 352_042)]
)
def test_parameter_count(width: float, classes: int, count: int) -> None:
    assert FlatSpec.of(shufflenet((3, 32, 32), classes, width=width)).num_parameters == count


def test_shuffle_alternates_channels() -> None:
    left, right = torch.tensor([0.0, 1, 2]).view(1, 3, 1, 1), torch.tensor([10.0, 11, 12]).view(1, 3, 1, 1)
    assert shuffle(left, right).flatten().tolist() == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("width", [0.5, 1.0])
@pytest.mark.parametrize(
    ("norm", "shape"), [("batch", (3, 32, 32)), ("group", (1, 28, 28)), ("none", (3, 28, 28)), ("batch", (1, 8, 8))]
)
def test_runs_forward_and_backward_and_eval_with_one_image(width: float, norm: str, shape: tuple[int, ...]) -> None:
    context = {"input_shape": shape, "num_classes": 10}
    with seeded(0):
        model = registry.build("models", "shufflenet", {"width": width, "norm": norm}, "model", context)
        logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 10)
    assert 0.01 < logits.std() < 5
    logits.logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.eval()(torch.ones(1, *shape)).shape == (1, 10)


def test_other_widths_and_text_are_refused() -> None:
    with pytest.raises(UserError, match=r"width = 2\.0"):
        shufflenet((3, 32, 32), 10, width=2.0)
    with pytest.raises(UserError, match=r"model\.name = 'shufflenet' needs images"):
        shufflenet((5000,), 20)


def test_groups_that_do_not_divide_58_channels_are_refused() -> None:
    with pytest.raises(UserError, match="groups = 8"):
        shufflenet((3, 32, 32), 10, norm="group", groups=8)
