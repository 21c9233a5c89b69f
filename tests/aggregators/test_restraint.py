"""How far SmartFL follows the weights that it found."""

import math

import pytest
import torch
from torch import Tensor, nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.mistrust import Mistrust
from smartfl.aggregators.restraint import restrained
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates

P, REST = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64), torch.full((4,), 0.25, dtype=torch.float64)


@pytest.mark.parametrize(("slope", "t"), [(0.04, 1.0), (0.06, 0.0)])
def test_the_gain_must_exceed_chance(slope: float, t: float) -> None:
    """1/Σp² = 2 and ½‖p − r‖₁ = ½, so df = ½; with κ = ½ and N = 10 the penalty is 0.025 (1 − t).
    L = slope · (p_3 + p_4) = slope · t/2: on the whole way p gains 0.02, which is chance, or 0.03, which is not."""
    found, way = restrained(P, REST, lambda q: slope * float(q[2:].sum()), before=math.inf, samples=10, strength=0.5)
    assert way == t
    assert torch.equal(found, REST if t else P)


def test_half_of_the_way() -> None:
    """L = 0.2 (p_3 + p_4)² = 0.05 t², so L + 0.025 (1 − t) has its minimum at t = 0.025 / 0.1 = ¼."""
    found, way = restrained(P, REST, lambda q: 0.2 * float(q[2:].sum()) ** 2, before=math.inf, samples=10, strength=0.5)
    assert way == 0.25
    assert found.tolist() == pytest.approx([0.4375, 0.4375, 0.0625, 0.0625])


@pytest.mark.parametrize(("before", "t"), [(0.02, 1.0), (0.0199, 0.75), (0.004, 0.0), (-1.0, 0.0)])
def test_the_loss_does_not_rise_for_the_sake_of_averaging(before: float, t: float) -> None:
    """L = 0.04 (p_3 + p_4) = 0.02 t and the penalty 0.025 (1 − t): chance on the whole way, L = 0, 0.005, … 0.02.
    Of those the last is taken that is not above the loss before the round; where p itself is above it, p."""
    _, way = restrained(P, REST, lambda q: 0.04 * float(q[2:].sum()), before=before, samples=10, strength=0.5)
    assert way == t


def test_a_mix_that_overflows_is_not_chosen() -> None:
    """Anywhere but at p the attackers' rows overflow; and at p only, where p itself is the one that does."""
    _, way = restrained(P, REST, lambda q: math.inf if q[2] > 0 else 5.0, before=math.inf, samples=1, strength=9.0)
    assert way == 0
    _, way = restrained(
        P, REST, lambda q: math.inf if q[2] == 0 else float(q[2]), before=math.inf, samples=1, strength=0.0
    )
    assert way == 0.25


class Alike:
    """Twelve clients that differ by chance alone, and as many samples of two classes, all too few to tell."""

    def __init__(self, samples: int = 24) -> None:
        generator = torch.Generator().manual_seed(1)
        truth = torch.randn(2, 6, generator=generator)
        self.model = nn.Linear(6, 2, bias=False)
        self.rows = truth.flatten() + 0.3 * torch.randn(12, 12, generator=generator)
        inputs = torch.randn(samples, 6, generator=generator)
        self.proxy = Proxy(inputs, (inputs @ truth.T).argmax(dim=1), 2)

    def weights(self, rule: SmartFL, rows: Tensor | None = None) -> Tensor:
        rows = self.rows if rows is None else rows
        updates = Updates.of(rows, origin=torch.zeros(12), spec=FlatSpec.of(self.model))
        server = Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(5))
        found = rule(updates, server).coefficients
        assert found is not None
        return found


def test_clients_that_are_alike_keep_their_weights() -> None:
    """Where the samples cannot tell clients apart the average is kept; the search alone drops most of them."""
    alike = Alike()
    followed, held = alike.weights(SmartFL(restraint=0.0)), alike.weights(SmartFL())
    assert 1 / followed.square().sum() < 8
    assert held.tolist() == pytest.approx([1 / 12] * 12)


def test_what_may_not_be_exceeded_is_the_loss_of_the_last_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global model of zeros says nothing: ln 2 with two classes, whatever the scale."""
    seen: list[float] = []

    def watched(p: Tensor, rest: Tensor, fit: object, before: float, samples: int, strength: float) -> object:
        seen.append(before)
        return p, 0.0

    monkeypatch.setattr("smartfl.aggregators.smartfl.restrained", watched)
    Alike().weights(SmartFL())
    assert seen == [pytest.approx(math.log(2))]


def test_clients_that_do_damage_lose_theirs() -> None:
    """Five of twelve send the opposite: hundreds of samples leave no doubt, and none of their weight comes back."""
    problem = Alike(samples=256)
    rows = torch.cat([problem.rows[:7], -problem.rows[7:]])
    assert problem.weights(SmartFL(server_epochs=50), rows)[7:].sum() < 0.01


def test_the_way_back_leads_to_the_trusted() -> None:
    """Client 0 lied before; in a round that tells nothing it gets the weight that is left to it."""
    alike, rule = Alike(), SmartFL()
    rule._past.observe(range(12), torch.tensor([5.0] + [0.0] * 11, dtype=torch.float64))
    past = Mistrust()
    past.load_state_dict(rule.state_dict())
    assert alike.weights(rule).tolist() == pytest.approx(past.trusted(range(12)).tolist())


def test_it_is_said_how_far() -> None:
    alike = Alike()
    updates = Updates.of(alike.rows, origin=torch.zeros(12), spec=FlatSpec.of(alike.model))
    info = SmartFL()(updates, Server(model=alike.model, proxy=alike.proxy)).info
    assert info["drawn_back"] == 1.0
    assert "drawn_back" not in SmartFL(restraint=0.0)(updates, Server(model=alike.model, proxy=alike.proxy)).info


def test_the_paper_has_none() -> None:
    assert SmartFL(variant="literal").restraint is None
    assert SmartFL().restraint == 0.5


@pytest.mark.parametrize("settings", [{"restraint": -0.1}, {"restraint": 0.5, "variant": "literal"}])
def test_settings_that_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(UserError, match="restraint = "):
        SmartFL(**settings)  # type: ignore[arg-type]
