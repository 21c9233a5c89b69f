"""Two camps or one."""

import pytest
import torch
from torch import Tensor

from smartfl.aggregators.camps import _akaike, lower_camp, two_camps


def values(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def once(x: Tensor) -> Tensor:
    """The lower camp of clients who were all in one round."""
    return lower_camp(torch.arange(len(x)), torch.zeros(len(x), dtype=torch.int64), x)


def by_round(*rounds: dict[int, float]) -> Tensor:
    """The lower camp of clients, of whom a round has the numbers of some."""
    who = torch.tensor([i for numbers in rounds for i in numbers])
    when = torch.tensor([r for r, numbers in enumerate(rounds) for _ in numbers])
    return lower_camp(who, when, values(*(c for numbers in rounds for c in numbers.values())))


def around(*means: tuple[float, int], spread: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([m + spread * torch.randn(n, generator=generator, dtype=torch.float64) for m, n in means])


def test_two_camps_far_apart():
    assert once(values(-0.2, 0.3, -0.21, 0.29, 0.31, -0.19, 0.3, 0.3)).tolist() == [
        *(True, False, True, False, False, True, False, False)
    ]


def test_a_majority_is_told_from_what_it_is_not():
    """56 that contradict and 24 that do not, four standard deviations apart."""
    camp = once(around((-0.1, 56), (0.06, 24), spread=0.04))
    assert camp[:56].double().mean() > 0.9
    assert camp[56:].double().mean() < 0.1


def test_one_camp_is_rarely_two():
    """Eighty numbers around 0: of a hundred draws at most 20 are taken for two camps (Akaike's criterion is generous),
    and not a tenth of all numbers is in a lower one."""
    taken = torch.stack([once(around((0.0, 80), spread=0.05, seed=s)) for s in range(100)]).double()
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
    assert not once(x).any(), why


@pytest.mark.parametrize("outlier", [0.9, -0.95])
@pytest.mark.parametrize("outliers", [1, 4])
def test_a_few_far_outside_do_not_hide_the_others(outlier: float, outliers: int):
    """48 honest and 32 liars, of whom one or four send something outrageous, or something much better than anyone."""
    x = around((0.12, 48), (-0.12, 32), spread=0.04)
    x[-outliers:] = outlier
    camp = once(x)
    assert not camp[:48].any()
    assert camp[48 : 80 - outliers].double().mean() > 0.9


@pytest.mark.parametrize(("members", "found"), [(5, False), (12, True)])
def test_the_upper_camp_is_a_tenth_of_all(members: int, found: bool):
    x = around((-0.1, 80 - members), (0.1, members), spread=0.01)
    assert bool(once(x).any()) == found


@pytest.mark.parametrize(("lower", "found"), [(-0.3, True), (0.05, True), (0.1, False)])
def test_the_lower_camp_gets_next_to_nowhere(lower: float, found: bool):
    """A quarter of 0.3 is 0.075."""
    assert bool(once(around((lower, 40), (0.3, 40), spread=0.01)).any()) == found


def test_one_group_spread_evenly_is_one():
    assert not once(torch.linspace(-1, 1, 80, dtype=torch.float64) + 0.3).any()


@pytest.mark.parametrize("n", [7, 8, 9, 12])
def test_one_who_knows_far_more_than_the_others_is_no_camp(n: int):
    assert not once(values(0.6, *(0.12 + 0.005 * k for k in range(n - 1)))).any()


def test_order_and_scale_do_not_matter():
    x = around((-0.1, 30), (0.1, 20), spread=0.03)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(once(x[order]), once(x)[order])
    assert torch.equal(once(1e-6 * x), once(x))


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
    assert once(x).tolist() == [True] * 6 + [False] * 6
    blurred = x + 0.9 * values(-1.5, -0.9, -0.3, 0.3, 0.9, 1.5, -1.5, -0.9, -0.3, 0.3, 0.9, 1.5)
    assert not once(blurred).any()


NOISE = torch.special.ndtri((torch.arange(20, dtype=torch.float64) + 0.5) / 20)  # twenty numbers of variance 1


def test_places_by_hand() -> None:
    """Two that are 1 apart in round 0 and 0.1 in round 1, with variances 0.01 and 0.0001: the rounds count the same,
    1/0.01 = 0.01/0.0001.  Round 1 is shifted by −0.03; the places are ±½ in either round, a tenth more or less, and the
    sixteen clients, each of whom was in one round, are told."""
    noise = 0.1 * values(-1, 1, -1, 1)
    first = dict(enumerate(torch.cat([0.5 + noise, -0.5 + noise]).tolist()))
    second = {i + 8: c for i, c in enumerate(torch.cat([0.02 + noise / 10, -0.08 + noise / 10]).tolist())}
    assert by_round(first, second).tolist() == ([False] * 4 + [True] * 4) * 2


def test_numbers_that_shrink_from_round_to_round_are_one_group() -> None:
    """Honest clients only: those of round 0 have 0.4, those of round 1 0.05.  If rounds were not told apart they were
    two camps; by places they are one."""
    early, late = 0.4 + 0.01 * NOISE, 0.05 + 0.01 * NOISE
    assert once(torch.cat([early, late])).any()
    assert not by_round(dict(enumerate(early.tolist())), {20 + i: c for i, c in enumerate(late.tolist())}).any()


def test_camps_that_shrink_each_in_its_own_way_are_told() -> None:
    """Liars lead nowhere in the first of three rounds and uphill when honest clients have next to nothing left to gain:
    what they have in all is −0.08 to 0, and honest ones 0.01 to 0.2."""
    rounds = []
    for r, (honest, liars) in enumerate([(0.2, 0.0), (0.06, -0.06), (0.01, -0.08)]):
        turned = NOISE.roll(7 * r)
        numbers = torch.cat([honest + 0.02 * turned, liars + 0.02 * turned.flip(0)]).tolist()
        rounds.append({i: c for i, c in enumerate(numbers) if i % 3 == r or i % 4 == 0})
    assert by_round(*rounds).tolist() == [False] * 20 + [True] * 20


def test_late_rounds_in_which_even_honest_clients_lead_away_do_not_acquit_liars() -> None:
    """Upper camp at 0.2 once and at −0.05 in five rounds more, Σ u = −0.05: by its only round that gets anywhere the
    lower one, at −0.3, lies."""
    honest = [0.2, *[-0.05] * 5]
    rounds = [
        dict(enumerate(torch.cat([u + 0.02 * NOISE.roll(r), -0.3 + 0.02 * NOISE.roll(-r)]).tolist()))
        for r, u in enumerate(honest)
    ]
    assert by_round(*rounds).tolist() == [False] * 20 + [True] * 20


def test_who_learns_while_there_is_something_to_learn_does_not_lie() -> None:
    """Upper camp at 0.5, lower one at 0.3, until both lead away, at 0.05 and −0.3, for five rounds: the means add up to
    0.75 and −1.2, but by least squares it is (0.15 − 5 · 0.015) / (0.25 + 5 · 0.0025) = 0.29."""
    rounds = [
        dict(enumerate(torch.cat([u + 0.02 * NOISE.roll(r), low + 0.02 * NOISE.roll(-r)]).tolist()))
        for r, (u, low) in enumerate([(0.5, 0.3), *[(0.05, -0.3)] * 5])
    ]
    assert not by_round(*rounds).any()


def test_a_start_that_sees_nothing_does_not_hide_the_camps() -> None:
    """Four rounds of ResNet-8 on CIFAR-10 under Fang's attack (knowledge rounded to 0.01; attackers are 0 to 18): from
    the slopes alone the turns end with one camp, since the attackers of the first round are as low as those of the last
    and honest ones shrink from 0.2 to 0."""
    camp = by_round(
        {
            0: -0.05,
            2: -0.06,
            4: -0.05,
            9: -0.06,
            10: -0.05,
            14: -0.05,
            18: -0.05,
            26: 0.17,
            27: 0.24,
            28: 0.22,
            29: 0.27,
            30: 0.08,
            35: 0.21,
            40: 0.19,
            43: 0.21,
            44: 0.22,
        },
        {
            1: -0.19,
            4: -0.19,
            7: -0.19,
            11: -0.19,
            12: -0.19,
            19: 0.03,
            20: 0.23,
            22: 0.09,
            28: 0.04,
            30: -0.01,
            32: 0.14,
            33: 0.1,
            36: 0.13,
            42: 0.11,
            43: 0.05,
            45: 0.09,
        },
        {
            6: -0.3,
            8: -0.31,
            12: -0.31,
            13: -0.31,
            15: -0.3,
            16: -0.31,
            22: 0.04,
            23: 0.05,
            24: 0.06,
            25: 0.02,
            28: -0.06,
            33: -0.02,
            34: 0.04,
            38: -0.07,
            39: 0.18,
            40: 0.08,
        },
        {
            3: -0.09,
            4: -0.09,
            5: -0.08,
            7: -0.08,
            10: -0.08,
            14: -0.08,
            17: -0.08,
            21: -0.02,
            23: 0.01,
            30: -0.03,
            31: -0.08,
            36: 0.05,
            37: -0.14,
            39: 0.07,
            41: 0.01,
            45: -0.0,
        },
    )
    assert camp[:19].all()
    assert camp[19:].sum() <= 2


def test_neither_start_is_enough_by_itself() -> None:
    """Three rounds of ResNet-8 on CIFAR-10 with 70 % of omniscient clients (knowledge rounded to 0.01; attackers are 0
    to 30; the first round has nobody else): from the distances alone the turns end with one camp, from the slopes not.
    """
    camp = by_round(
        {
            0: -0.04,
            2: -0.14,
            4: -0.05,
            7: -0.12,
            8: -0.14,
            9: -0.1,
            11: -0.13,
            12: -0.04,
            13: -0.03,
            16: -0.07,
            18: -0.12,
            23: -0.05,
            24: -0.05,
            27: -0.09,
            29: -0.03,
            30: -0.02,
        },
        {
            1: -0.1,
            3: -0.14,
            4: -0.08,
            9: -0.08,
            10: -0.0,
            12: -0.07,
            14: -0.08,
            15: -0.08,
            17: -0.08,
            19: -0.13,
            21: -0.06,
            25: -0.06,
            27: -0.09,
            31: 0.2,
            32: 0.14,
            38: 0.18,
        },
        {
            5: -0.11,
            6: -0.17,
            9: -0.07,
            15: -0.16,
            20: -0.03,
            21: -0.08,
            22: -0.11,
            24: -0.11,
            26: -0.03,
            28: -0.16,
            32: 0.09,
            33: 0.05,
            34: 0.08,
            35: 0.1,
            36: 0.06,
            37: 0.24,
        },
    )
    assert camp[:31].sum() >= 20
    assert not camp[31:].any()


def test_more_rounds_tell_more() -> None:
    """Three standard deviations apart are one group in one round, and two in four with noise of their own."""
    generator = torch.Generator().manual_seed(0)

    def a_round() -> dict[int, float]:
        noise = torch.randn(40, generator=generator, dtype=torch.float64)
        return dict(enumerate((noise + values(*[1.0] * 20, *[-2.0] * 20)).tolist()))

    rounds = [a_round() for _ in range(4)]
    assert not by_round(rounds[0]).any()
    assert by_round(*rounds).tolist() == [False] * 20 + [True] * 20


@pytest.mark.parametrize("spread", ["normal", "even"])
def test_one_group_stays_one_over_many_rounds(spread: str) -> None:
    """Eighty clients who differ for good, sixteen a round, in rounds that shrink and shift: nobody is in a lower camp
    in nine of ten runs."""
    wrong = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        own = torch.randn(80, generator=generator) if spread == "normal" else torch.rand(80, generator=generator) * 3
        rounds = []
        for r in range(8):
            cohort = torch.randperm(80, generator=generator)[:16]
            shift = 0.3 * torch.randn((), generator=generator)
            noise = 0.7 * torch.randn(16, generator=generator)
            numbers = 0.9**r * (own[cohort] + shift) + noise
            rounds.append(dict(zip(cohort.tolist(), numbers.tolist(), strict=True)))
        wrong += bool(by_round(*rounds).any())
    assert wrong <= 2


def test_a_round_of_one_camp_says_nothing() -> None:
    """Clients 40 to 49, who were only in a round where the honest ones were not, are in no camp."""
    told = dict(enumerate(torch.cat([0.3 + 0.02 * NOISE, -0.2 + 0.02 * NOISE]).tolist()))
    alone = {i: -0.2 + 0.001 * i for i in range(40, 50)}
    camp = by_round(told, alone)
    assert camp[:40].tolist() == [False] * 20 + [True] * 20


def test_two_camps_from_where_one_is_told_to_start() -> None:
    x = values(-0.2, 0.3, -0.21, 0.29, 0.31, -0.19, 0.3, 0.3)
    found, started = two_camps(x), two_camps(x, (x < 0).double())
    assert found is not None
    assert started is not None
    torch.testing.assert_close(found.lower, started.lower)
    assert found.apart == pytest.approx(started.apart)
    assert two_camps(x, torch.zeros(8, dtype=torch.float64)) is None
