import pytest
import torch

from smartfl import registry
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.models.logistic import logistic


def test_one_weight_per_feature_and_class_plus_bias() -> None:
    """20 · 1000 + 20 = 20,020."""
    assert FlatSpec.of(logistic((1000,), 20)).size == 20_020


def test_images_are_flattened_and_the_output_is_w_x_plus_b() -> None:
    model = logistic((1, 8, 8), 10)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = x.reshape(3, 64) @ model.linear.weight.T + model.linear.bias
    torch.testing.assert_close(model(x), expected)


def test_logits_of_a_mix_are_the_mix_of_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    model = logistic((5,), 3)
    assert model.linear_in_parameters is True
    spec = FlatSpec.of(model)
    clients, x = torch.randn(4, spec.size, generator=generator), torch.randn(6, 5, generator=generator)
    p = torch.tensor([0.1, 0.2, 0.3, 0.4])
    mixed = sum(p[i] * spec.functional_call(model, clients[i], x) for i in range(4))
    torch.testing.assert_close(spec.functional_call(model, p @ clients, x), mixed)


def test_an_empty_sample_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"model\.name = 'logistic'"):
        logistic((), 3)


def test_built_by_name() -> None:
    context = {"input_shape": (7,), "num_classes": 2}
    assert FlatSpec.of(registry.build("models", "logistic", {}, "model", context)).size == 16
