"""What must hold for every rule without proxy data, and a table of what does not hold for which rule and why.

Every exception is tested too: a fixed example must show it, so the table cannot outlive its reason.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from smartfl.aggregators.base import Aggregator
from smartfl.aggregators.bucketing import Bucketing
from smartfl.aggregators.bulyan import Bulyan
from smartfl.aggregators.centered_clipping import CenteredClipping
from smartfl.aggregators.clipping import Clipping
from smartfl.aggregators.dnc import DnC
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.fedavgm import FedAvgM
from smartfl.aggregators.fednova import FedNova
from smartfl.aggregators.fedopt import FedAdagrad, FedAdam, FedYogi
from smartfl.aggregators.fools_gold import FoolsGold
from smartfl.aggregators.geometric_median import GeometricMedian
from smartfl.aggregators.ida import IDA
from smartfl.aggregators.krum import Krum
from smartfl.aggregators.median import Median
from smartfl.aggregators.multi_krum import MultiKrum
from smartfl.aggregators.nearest_neighbour_mixing import NearestNeighbourMixing
from smartfl.aggregators.norm_clipping import NormClipping
from smartfl.aggregators.residual_reweighting import ResidualReweighting
from smartfl.aggregators.sign_majority import SignMajority
from smartfl.aggregators.trimmed_mean import TrimmedMean
from smartfl.aggregators.uniform import Uniform
from smartfl.registry import names, resolve
from smartfl.types import Aggregate, Updates

# A factory per rule, as the rules keep state; the argument is the number of attackers to assume.
RULES: dict[str, Callable[[int], Aggregator]] = {
    "fedavg": lambda f: FedAvg(),
    "uniform": lambda f: Uniform(),
    "median": lambda f: Median(),
    "trimmed_mean": lambda f: TrimmedMean(b=f),
    "krum": lambda f: Krum(f=f),
    "multi_krum": lambda f: MultiKrum(f=f, q=4),
    "bulyan": lambda f: Bulyan(f=f),
    "geometric_median": lambda f: GeometricMedian(),
    "dnc": lambda f: DnC(f=f),
    "centered_clipping": lambda f: CenteredClipping(tau=0.5, iterations=2),
    "sign_majority": lambda f: SignMajority(step=0.01),
    "norm_clipping": lambda f: NormClipping(threshold=0.5),
    "residual_reweighting": lambda f: ResidualReweighting(),
    "fools_gold": lambda f: FoolsGold(),
    "ida": lambda f: IDA(),
    "fednova": lambda f: FedNova(),
    "fedavgm": lambda f: FedAvgM(),
    "fedadam": lambda f: FedAdam(),
    "fedyogi": lambda f: FedYogi(),
    "fedadagrad": lambda f: FedAdagrad(),
    "bucketing": lambda f: Bucketing(Median(), size=2),
    "nearest_neighbour_mixing": lambda f: NearestNeighbourMixing(MultiKrum(f=f), f=f),
    "clipping": lambda f: Clipping(Median(), threshold=0.5),
}

LENGTH = "updates longer than the threshold are shortened towards w^t"
STEP = "it takes steps of its own length from w^t"
# property → rule → why it does not hold
EXCEPTIONS: dict[str, dict[str, str]] = {
    "permutation": {
        "bucketing": "the groups are drawn by position, from the same random numbers",
        "bulyan": "Krum on the last few looks at one neighbour (k = 1): nearest pairs tie and the smaller id wins",
    },
    "translation": {
        "centered_clipping": LENGTH,
        "norm_clipping": LENGTH,
        "clipping": LENGTH,
        "sign_majority": STEP,
        "fools_gold": "a common shift makes all updates look alike",
        "fednova": "updates are divided by the clients' unequal numbers of steps",
        "fedadam": STEP,
        "fedyogi": STEP,
        "fedadagrad": STEP,
    },
    "identical": {
        "centered_clipping": LENGTH,
        "norm_clipping": LENGTH,
        "clipping": LENGTH,
        "sign_majority": STEP,
        "fools_gold": "identical clients are Sybils: the global model is kept",
        "fednova": "updates are divided by the clients' unequal numbers of steps",
        "fedadam": STEP,
        "fedyogi": STEP,
        "fedadagrad": STEP,
    },
    "doubled": {
        "trimmed_mean": "b stays while n doubles",
        "krum": "k = n − f − 2 is not half of 2n − f − 2, and the twin is at distance 0",
        "multi_krum": "q stays while n doubles",
        "bulyan": "f stays while n doubles",
        "dnc": "f stays while n doubles",
        "residual_reweighting": "the twins' ranks differ, and K and τ depend on n",
        "fools_gold": "twins are Sybils",
        "bucketing": "other groups are drawn from twice as many clients",
        "nearest_neighbour_mixing": "f stays while n doubles",
    },
    # What one row of 1e30 does to a rule that is not made for it.
    "hull": {
        "fedavg": "every row has its weight",
        "uniform": "every row has its weight",
        "ida": "every row has its weight, and the row moves the mean",
        "fools_gold": "one of a kind is what it trusts",
        "fednova": "every row has its weight",
        "fedavgm": "every row has its weight",
        "centered_clipping": "a step of up to τ from w^t, which need not lie between the clients",
        "norm_clipping": "a mean of shortened updates lies near w^t, not between the clients",
        "clipping": "shortened updates lie near w^t, not between the clients",
        "sign_majority": STEP,
        "fedadam": STEP,
        "fedyogi": STEP,
        "fedadagrad": STEP,
    },
}


def draw(seed: int, n: int, d: int, spread: float = 1.0) -> Updates:
    """n clients around 3, away from the origin 0, with unequal sample and step counts; float64, no ties."""
    generator = torch.Generator().manual_seed(seed)
    rows = 3 + spread * torch.randn(n, d, generator=generator, dtype=torch.float64)
    counts = torch.randint(1, 50, (n,), generator=generator)
    steps = torch.randint(1, 9, (n,), generator=generator)
    return Updates.of(rows, counts, torch.zeros(d, dtype=torch.float64), num_steps=steps)


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-6, atol=1e-6)


def permuted(updates: Updates, order: Tensor) -> Updates:
    return Updates.of(
        updates.matrix[order], updates.num_examples[order], updates.origin, num_steps=updates.num_steps[order]
    )


def check_permutation(make: Callable[[int], Aggregator], updates: Updates, seed: int) -> bool:
    order = torch.randperm(len(updates), generator=torch.Generator().manual_seed(seed))
    plain, other = make(1)(updates), make(1)(permuted(updates, order))
    same = close(plain.vector, other.vector)
    if plain.coefficients is None:
        return same and other.coefficients is None
    assert other.coefficients is not None
    return same and close(plain.coefficients[order], other.coefficients)


def check_translation(make: Callable[[int], Aggregator], updates: Updates, seed: int) -> bool:
    shift = torch.randn(updates.spec.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = updates.with_matrix(updates.matrix + shift)
    return close(make(1)(updates).vector + shift, make(1)(moved).vector)


def check_identical(make: Callable[[int], Aggregator], updates: Updates, seed: int) -> bool:
    same = updates.with_matrix(updates.matrix[:1].expand_as(updates.matrix).contiguous())
    return close(make(1)(same).vector, updates.matrix[0])


def check_doubled(make: Callable[[int], Aggregator], updates: Updates, seed: int) -> bool:
    twice = permuted(updates, torch.arange(len(updates)).repeat_interleave(2))
    return close(make(1)(updates).vector, make(1)(twice).vector)


def check_hull(make: Callable[[int], Aggregator], updates: Updates, seed: int) -> bool:
    """With one row of ±1e30 the result lies between the smallest and the largest honest value of each coordinate."""
    matrix = updates.matrix.clone()
    bad = seed % len(updates)
    matrix[bad] = 1e30 * torch.sign(matrix[bad] - 3)
    vector = make(1)(updates.with_matrix(matrix)).vector
    honest = torch.cat([matrix[:bad], matrix[bad + 1 :]])
    slack = 1e-3
    return bool(((vector >= honest.min(dim=0).values - slack) & (vector <= honest.max(dim=0).values + slack)).all())


CHECKS = {
    "permutation": check_permutation,
    "translation": check_translation,
    "identical": check_identical,
    "doubled": check_doubled,
    "hull": check_hull,
}
HOLDS = [(p, r) for p in CHECKS for r in RULES if r not in EXCEPTIONS[p]]
FAILS = [(p, r) for p in CHECKS for r in EXCEPTIONS[p]]

worlds = st.builds(
    draw,
    seed=st.integers(0, 10_000),
    n=st.integers(7, 12),
    d=st.integers(2, 9),
    spread=st.sampled_from([0.01, 1.0, 30.0]),
)
few = settings(max_examples=8, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(("name", "rule"), HOLDS)
@few
@given(updates=worlds, seed=st.integers(0, 1000))
def test_property(name: str, rule: str, updates: Updates, seed: int) -> None:
    assert CHECKS[name](RULES[rule], updates, seed)


@pytest.mark.parametrize(("name", "rule"), FAILS)
def test_exception_is_real(name: str, rule: str) -> None:
    assert not all(CHECKS[name](RULES[rule], draw(seed, 8, 4), seed) for seed in range(12))


def test_the_table_covers_every_registered_rule_without_proxy_data() -> None:
    """A wrapper's class asks its rule, so its ``needs_proxy`` is a property there and not a word."""
    free = {name for name in names("aggregators") if getattr(resolve("aggregators", name), "needs_proxy", "no") == "no"}
    wrappers = {"bucketing", "nearest_neighbour_mixing", "clipping"}
    assert free | wrappers == set(RULES)


@pytest.mark.parametrize("rule", RULES)
@few
@given(updates=worlds, seed=st.integers(0, 1000))
def test_translation_together_with_the_origin(rule: str, updates: Updates, seed: int) -> None:
    """Moving the global model along leaves every Δ as it is, so here no rule is excepted."""
    shift = torch.randn(updates.spec.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = Updates.of(
        updates.matrix + shift, updates.num_examples, updates.origin + shift, num_steps=updates.num_steps
    )
    assert close(RULES[rule](1)(updates).vector + shift, RULES[rule](1)(moved).vector)


@pytest.mark.parametrize("rule", RULES)
@few
@given(updates=worlds, bad=st.integers(0, 6), value=st.sampled_from([torch.nan, torch.inf, -torch.inf]))
def test_a_row_that_is_not_finite_is_as_good_as_absent(rule: str, updates: Updates, bad: int, value: float) -> None:
    """The refused client is one of the f attackers: f = 1 with it is f = 0 without."""
    matrix = updates.matrix.clone()
    matrix[bad, -1] = value
    with_it: Aggregate = RULES[rule](1)(updates.with_matrix(matrix))
    rest = [i for i in range(len(updates)) if i != bad]
    without = RULES[rule](0)(updates.select(rest))
    assert torch.equal(with_it.vector, without.vector)
    assert [d.id for d in with_it.dropped] == [bad]
    if without.coefficients is not None:
        assert with_it.coefficients is not None
        assert with_it.coefficients[bad] == 0
        assert torch.equal(with_it.coefficients[rest], without.coefficients)


@pytest.mark.parametrize("rule", RULES)
@few
@given(updates=worlds)
def test_coefficients_are_on_the_simplex_or_all_zero(rule: str, updates: Updates) -> None:
    result = RULES[rule](1)(updates)
    if result.coefficients is None:
        return
    assert result.coefficients.shape == (len(updates),)
    assert (result.coefficients >= 0).all()
    total = float(result.coefficients.sum())
    assert total == pytest.approx(1) or (total == 0 and result.events)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("value", [1e30, -3e38])
def test_a_huge_row_never_makes_inf_or_nan(rule: str, value: float) -> None:
    updates = draw(0, 8, 5)
    matrix = updates.matrix.to(torch.float32)
    matrix[3] = value
    small = Updates.of(matrix, updates.num_examples, updates.origin, num_steps=updates.num_steps)
    result = RULES[rule](1)(small)
    assert result.vector.dtype == torch.float32
    if rule != "fednova" or abs(value) < 1e38:  # τ_eff/a_i above 1 carries 3e38 over the edge of float32
        assert torch.isfinite(result.vector).all()


@pytest.mark.parametrize("rule", RULES)
def test_state_survives_a_round_trip(rule: str) -> None:
    """Two rounds in one object are one round, a checkpoint, and one round in another object."""
    first, second = draw(1, 8, 4), draw(2, 8, 4)
    whole, half, resumed = (RULES[rule](1) for _ in range(3))
    whole(first)
    half(first)
    resumed.load_state_dict(half.state_dict())
    assert torch.equal(whole(second).vector, resumed(second).vector)
    assert sorted(whole.state_dict()) == sorted(resumed.state_dict())


@pytest.mark.parametrize("rule", RULES)
def test_one_client_alone(rule: str) -> None:
    """No rule crashes on a cohort of one; where nothing is clipped or stepped, that client is the result."""
    updates = draw(5, 1, 3)
    vector = RULES[rule](0)(updates).vector if rule != "multi_krum" else MultiKrum()(updates).vector
    assert torch.isfinite(vector).all()
    if rule not in EXCEPTIONS["identical"] or rule in ("fools_gold", "fednova"):
        assert close(vector, updates.matrix[0])
