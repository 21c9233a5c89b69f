"""Evidence against clients, and what SmartFL makes of it."""

import pytest
import torch
from torch import nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.mistrust import Mistrust
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates


def values(*x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def test_evidence_by_hand() -> None:
    """Round 1, x = (4, 0, −1) of clients 0, 1, 2: M = 4, it counts 1, marks are 1, 0, 0.
    Round 2, x = (0.5, 0.1) of clients 0 and 2: M = 0.5, it counts 0.5, marks are 0.5 and 0.1.
    Marks over counts: 1.5/1.5, 0/1, 0.1/1.5, their mean ē = 0.35556, half of it 0.17778.
    e = (1.67778/2, 0.17778/1.5, 0.27778/2), and ē for client 7, who was never there."""
    past = Mistrust()
    assert past.of([0, 1]).tolist() == [0, 0]
    past.observe([0, 1, 2], values(4, 0, -1))
    past.observe([0, 2], values(0.5, 0.1))
    assert past.of([0, 1, 2, 7]).tolist() == pytest.approx([0.838889, 0.118519, 0.138889, 0.355556], abs=1e-6)


@pytest.mark.parametrize("x", [values(0, -1), values(-2, -3), values(float("nan"), 1), values(float("inf"), 1)])
def test_a_round_that_says_nothing_changes_nothing(x: torch.Tensor) -> None:
    past = Mistrust()
    past.observe([0, 1], x)
    assert past.state_dict() == {}


class Problem:
    """Five features, three classes; rows near ``good`` solve it, rows near its negative get everything wrong."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        truth = torch.randn(3, 5, generator=generator)
        inputs = torch.randn(64, 5, generator=generator)
        self.model = nn.Linear(5, 3)
        self.good = torch.cat([truth.reshape(-1), torch.zeros(3)])
        self.noise = torch.randn(4, len(self.good), generator=generator)
        self.proxy = Proxy(inputs, (inputs @ truth.T).argmax(dim=1), 3)

    def updates(self, rows: torch.Tensor, origin: torch.Tensor | None = None) -> Updates:
        return Updates.of(rows, origin=origin, spec=FlatSpec.of(self.model))

    def server(self) -> Server:
        return Server(model=self.model, proxy=self.proxy, generator=torch.Generator().manual_seed(5))

    def around(self, *signs: float) -> torch.Tensor:
        return torch.stack([s * self.good + 0.2 * e for s, e in zip(signs, self.noise, strict=False)])


def two_rounds(mistrust: float | None, resumed: bool = False) -> torch.Tensor:
    """Weights of clients 0 … 3 in a second round in which all send much the same; in the first, client 3 lied."""
    problem, rule = Problem(), SmartFL(mistrust=mistrust, server_epochs=50)
    rule(problem.updates(problem.around(1, 1, 1, -1)), problem.server())
    if resumed:
        state, rule = rule.state_dict(), SmartFL(mistrust=mistrust, server_epochs=50)
        rule.load_state_dict(state)
    rows = problem.good + 1e-3 * problem.noise[:4]
    found = rule(problem.updates(rows, origin=problem.good), problem.server()).coefficients
    assert found is not None
    return found


def test_who_lied_before_weighs_less_where_the_samples_cannot_tell() -> None:
    forgetful, remembering = two_rounds(None), two_rounds(2.0)
    assert forgetful[3] > 0.9
    assert remembering[3] == 0


def test_memory_survives_a_resume_bit_for_bit() -> None:
    assert torch.equal(two_rounds(2.0), two_rounds(2.0, resumed=True))


def test_none_and_zero_remember_nothing() -> None:
    problem = Problem()
    for mistrust in (None, 0.0):
        rule = SmartFL(mistrust=mistrust)
        rule(problem.updates(problem.around(1, 1, -1)), problem.server())
        assert rule.state_dict() == {}
    assert torch.equal(two_rounds(None), two_rounds(0.0))


@pytest.mark.parametrize(
    "settings", [{"mistrust": -1}, {"mistrust": 2, "penalty": 0}, {"mistrust": 2, "variant": "literal"}]
)
def test_settings_that_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(UserError, match="mistrust = "):
        SmartFL(**settings)  # type: ignore[arg-type]
