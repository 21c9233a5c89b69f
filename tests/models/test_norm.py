import pytest
import torch
from torch import nn

from smartfl.errors import UserError
from smartfl.models.norm import Norm
from smartfl.rng import seeded


def test_a_bias_only_where_no_normalisation_shifts() -> None:
    assert [type(m) for m in Norm("batch").conv(3, 4, 3)] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert [type(m) for m in Norm("group").conv(3, 4, 3)] == [nn.Conv2d, nn.GroupNorm, nn.ReLU]
    assert [type(m) for m in Norm("none").conv(3, 4, 3, relu=False)] == [nn.Conv2d]
    assert Norm("batch").conv(3, 4, 3)[0].bias is None
    assert Norm("none").conv(3, 4, 3)[0].bias.count_nonzero() == 0


@pytest.mark.parametrize(("relu", "variance"), [(True, 2 / 576), (False, 1 / 576)])
def test_without_normalisation_the_variance_is_kept(relu: bool, variance: float) -> None:
    """fan_in = 64 · 3 · 3 = 576; 36,864 draws put the sample variance within 5 %."""
    with seeded(0):
        weight = Norm("none").conv(64, 64, 3, relu=relu)[0].weight
    assert weight.var().item() == pytest.approx(variance, rel=0.05)


def test_depthwise_has_one_filter_per_channel_and_keeps_the_size() -> None:
    layer = Norm().conv(6, 6, 3, depthwise=True)
    assert layer[0].weight.shape == (6, 1, 3, 3)
    assert layer(torch.ones(2, 6, 7, 7)).shape == (2, 6, 7, 7)
    assert Norm().conv(6, 6, 3, stride=2, depthwise=True)(torch.ones(2, 6, 7, 7)).shape == (2, 6, 4, 4)


def test_groups_must_divide_the_channels() -> None:
    with pytest.raises(UserError, match="groups = 3"):
        Norm("group", 3).layer(16)
