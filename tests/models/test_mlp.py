import pytest
import torch

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.mlp import mlp


def test_parameter_count_of_one_hidden_layer() -> None:
    """64·64 + 64 + 64·10 + 10 = 4,810 for 8×8 digits."""
    assert FlatSpec.of(mlp((1, 8, 8), 10)).size == 4_810


def test_hidden_widths_are_a_setting_and_may_be_a_list() -> None:
    """4·3 + 3, 3·2 + 2, 2·2 + 2 = 15 + 8 + 6 = 29."""
    context = {"input_shape": (4,), "num_classes": 2}
    model = registry.build("models", "mlp", {"hidden": [3, 2]}, "model", context)
    assert FlatSpec.of(model).size == 29
    assert model(torch.ones(5, 4)).shape == (5, 2)


def test_nonlinear_between_layers() -> None:
    """With all weights 1 and no bias, x = −1 gives ReLU(−1) = 0 and x = 2 gives 3 · 2 = 6."""
    model = mlp((1,), 1, hidden=(3,))
    spec = FlatSpec.of(model)
    vector = torch.tensor([1.0, 1, 1, 0, 0, 0, 1, 1, 1, 0])
    assert spec.functional_call(model, vector, torch.tensor([[-1.0], [2.0]])).flatten().tolist() == [0, 6]


def test_a_width_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="hidden"):
        mlp((4,), 2, hidden=(0,))
