"""Two camps or one."""

import pytest
import torch
from torch import Tensor

from smartfl.aggregators.camps import _akaike, lower_camp


def values(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def around(*means: tuple[float, int], spread: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([m + spread * torch.randn(n, generator=generator, dtype=torch.float64) for m, n in means])


def test_two_camps_far_apart():
    assert lower_camp(values(-0.2, 0.3, -0.21, 0.29, 0.31, -0.19, 0.3, 0.3)).tolist() == [
        *(True, False, True, False, False, True, False, False)
    ]


def test_a_majority_is_told_from_what_it_is_not():
    """56 that contradict and 24 that do not, four standard deviations apart."""
    camp = lower_camp(around((-0.1, 56), (0.06, 24), spread=0.04))
    assert camp[:56].double().mean() > 0.9
    assert camp[56:].double().mean() < 0.1


def test_one_camp_is_rarely_two():
    """Eighty numbers around 0: of a hundred draws at most 20 are taken for two camps (Akaike's criterion is generous),
    and not a tenth of all numbers is in a lower one."""
    taken = torch.stack([lower_camp(around((0.0, 80), spread=0.05, seed=s)) for s in range(100)]).double()
    assert taken.amax(dim=1).sum() <= 20
    assert taken.mean() < 0.1


@pytest.mark.parametrize(
    ("why", "x"),
    [
        ("both lead somewhere", around((0.2, 40), (0.4, 40), spread=0.02)),
        ("neither does", around((-0.4, 40), (-0.1, 40), spread=0.02)),
        ("the upper camp is one number", torch.cat([around((-0.1, 20), spread=0.02), values(0.4)])),
        ("all are the same", torch.full((20,), -0.3, dtype=torch.float64)),
        ("five numbers can always be told apart", values(-0.2, -0.2, 0.3, 0.3, 0.3)),
        ("nothing is known", values()),
        ("one number", values(0.1)),
        ("not finite", values(-0.2, float("nan"), 0.3, 0.3, 0.3, -0.2, -0.2)),
    ],
)
def test_nobody_is_in_a_lower_camp_where(why: str, x: Tensor):
    assert not lower_camp(x).any(), why


@pytest.mark.parametrize("outlier", [0.9, -0.95])
@pytest.mark.parametrize("outliers", [1, 4])
def test_a_few_far_outside_do_not_hide_the_others(outlier: float, outliers: int):
    """48 honest and 32 liars, of whom one or four send something outrageous, or something much better than anyone."""
    x = around((0.12, 48), (-0.12, 32), spread=0.04)
    x[-outliers:] = outlier
    camp = lower_camp(x)
    assert not camp[:48].any()
    assert camp[48 : 80 - outliers].double().mean() > 0.9


@pytest.mark.parametrize(("members", "found"), [(7, False), (12, True)])
def test_the_upper_camp_is_a_tenth_of_all(members: int, found: bool):
    x = around((-0.1, 80 - members), (0.1, members), spread=0.01)
    assert bool(lower_camp(x).any()) == found


@pytest.mark.parametrize(("lower", "found"), [(-0.3, True), (0.05, True), (0.1, False)])
def test_the_lower_camp_gets_next_to_nowhere(lower: float, found: bool):
    """A quarter of 0.3 is 0.075."""
    assert bool(lower_camp(around((lower, 40), (0.3, 40), spread=0.01)).any()) == found


def test_one_group_spread_evenly_is_one():
    assert not lower_camp(torch.linspace(-1, 1, 80, dtype=torch.float64) + 0.3).any()


@pytest.mark.parametrize("n", [7, 8, 9, 12])
def test_one_who_knows_far_more_than_the_others_is_no_camp(n: int):
    assert not lower_camp(values(0.6, *(0.12 + 0.005 * k for k in range(n - 1)))).any()


def test_order_and_scale_do_not_matter():
    x = around((-0.1, 30), (0.1, 20), spread=0.03)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(lower_camp(x[order]), lower_camp(x)[order])
    assert torch.equal(lower_camp(1e-6 * x), lower_camp(x))


def test_what_parameters_must_gain_by_hand():
    """2k + 2k(k + 1)/(n − k − 1): 8 + 40/5 for four parameters and ten numbers, 4 + 12/7 for two."""
    assert _akaike(4, 10) == pytest.approx(16)
    assert _akaike(2, 10) == pytest.approx(4 + 12 / 7)
    assert _akaike(4, 5) == float("inf")


def test_the_likelihoods_by_hand():
    """Six numbers at −1 and six at 1: one camp has variance 1 and Σz² = 12, two have variance 0, held at 0.001. Every
    number then has likelihood ½ in its own camp: twice the gain is 12 ln 1000 − 24 ln 2 + 12 = 78, far above
    8 + 40/7 − 4 − 12/9 = 8.4. With noise of standard deviation 0.9 in each camp it is not."""
    x = values(*[-1.0] * 6, *[1.0] * 6)
    assert lower_camp(x).tolist() == [True] * 6 + [False] * 6
    blurred = x + 0.9 * values(-1.5, -0.9, -0.3, 0.3, 0.9, 1.5, -1.5, -0.9, -0.3, 0.3, 0.9, 1.5)
    assert not lower_camp(blurred).any()
