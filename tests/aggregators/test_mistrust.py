"""Evidence against clients, and what SmartFL makes of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

from smartfl.aggregators import SmartFL
from smartfl.aggregators.breadth import breadth
from smartfl.aggregators.calibration import CalibratedLoss, class_balance
from smartfl.aggregators.hull import Hull
from smartfl.aggregators.knowledge import knowledge
from smartfl.aggregators.mistrust import HEARINGS, Mistrust
from smartfl.aggregators.proxy import client_logits, model_logits
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Aggregate, Proxy, Server, Updates


def values(*x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def hear(past: Mistrust, ids: Sequence[int], k: torch.Tensor, breadth: float = 1.0) -> None:
    """Clients who have learned a share ``breadth`` of the classes each."""
    past.learn(ids, k, torch.full_like(k, breadth))


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


def test_trust_is_what_mistrust_leaves() -> None:
    """The e above: 1 − e = (0.161111, 0.881481, 0.861111), whose sum is 1.903704."""
    past = Mistrust()
    assert past.trusted([0, 1]).tolist() == [0.5, 0.5]
    past.observe([0, 1, 2], values(4, 0, -1))
    past.observe([0, 2], values(0.5, 0.1))
    assert past.trusted([0, 1, 2]).tolist() == pytest.approx([0.084630, 0.463035, 0.452335], abs=1e-6)


NORMAL = torch.special.ndtri((torch.arange(20, dtype=torch.float64) + 0.5) / 20)  # twenty numbers of variance 1
LIARS = values(*[0.4] * 12, *[-0.2] * 8)  # clients 0 to 11 follow the labels, 12 to 19 contradict them


def test_who_contradicts_by_hand() -> None:
    """Client 20, who was never there, is in no camp."""
    past = Mistrust()
    hear(past, range(20), LIARS)
    assert past.of([0, 11, 12, 13, 19, 20]).tolist() == [0, 0, 1, 1, 1, 0]
    assert past.trusted([0, 11, 13]).tolist() == [0.5, 0.5, 0]


def test_who_can_be_done_without_by_hand() -> None:
    """Clients 12 to 19 contradict.  The breadths of the others are 0.125 of six and 0.275 of six: their median is the
    mean, 0.2, which is enough; and so are four of eight, but not four of nine.  Those who contradict have no say, nor
    has who is heard after four rounds."""
    past = Mistrust()
    assert past.left_out([0, 12]).tolist() == [False, False]
    assert past.breadth() == 0
    for _ in range(HEARINGS):
        past.learn(range(20), LIARS, values(*[0.125, 0.275] * 6, *[0.0] * 8))
    past.learn(range(20, 40), LIARS, values(*[0.0] * 20))
    assert past.breadth() == 0.2
    assert past.left_out([0, 1, 2, 20, 12, 13, 14, 15]).tolist() == [False] * 4 + [True] * 4
    assert not past.left_out([0, 1, 2, 20, 12, 13, 14, 15, 16]).any()


def test_clients_of_few_classes_can_do_without_nobody() -> None:
    past = Mistrust()
    past.learn(range(20), LIARS, torch.where(LIARS > 0, 0.199, 1.0))
    assert past.contradict(range(20)).any()
    assert not past.left_out(range(20)).any()


def test_clients_are_compared_round_by_round() -> None:
    """In round 1 what honest clients know has shrunk to 0.05 and liars have −0.1: client 5 has 0.05 there as an honest
    one has, though in round 0, of which it knows nothing, that is nearer to a liar's −0.2 than to 0.4."""
    past = Mistrust()
    hear(past, [*range(5), *range(6, 20)], torch.cat([LIARS[:11], LIARS[12:]]))
    hear(past, range(4, 20), values(*[0.05] * 8, *[-0.1] * 8))
    assert past.contradict(range(20)).tolist() == [False] * 12 + [True] * 8


def test_a_round_that_tells_nobody_apart_says_nothing() -> None:
    past = Mistrust()
    hear(past, range(20), LIARS)
    hear(past, range(20), values(*[0.0] * 20))
    assert past.contradict(range(20)).tolist() == [False] * 12 + [True] * 8


def test_who_is_heard() -> None:
    """Four times."""
    past = Mistrust()
    for _ in range(HEARINGS):
        assert past.to_hear([7, 3]) == [0, 1]
        hear(past, [7], values(0.1))
    assert past.to_hear([7, 3, 8]) == [1, 2]


def test_how_far_apart_camps_must_be() -> None:
    """Of forty 3.5 (1 + 5/40) = 3.94 standard deviations: 4.2 are enough, 3.8 are not."""
    for distance, contradict in ((4.2, 20), (3.8, 0)):
        past = Mistrust()
        hear(past, range(40), torch.cat([NORMAL - 1, NORMAL - 1 + distance]))
        assert int(past.contradict(range(40)).sum()) == contradict, distance


@pytest.mark.parametrize("spread", ["normal", "even"])
def test_who_leads_uphill_in_one_group_does_not_contradict(spread: str) -> None:
    """Clients of one class each lead uphill as often as down: half of these do, and there are no camps."""
    places = (torch.arange(80, dtype=torch.float64) + 0.5) / 80
    past = Mistrust()
    hear(past, range(80), torch.special.ndtri(places) / 20 if spread == "normal" else places / 5 - 0.1)
    assert not past.contradict(range(80)).any()


def test_where_everybody_contradicts_nobody_is_to_blame() -> None:
    past = Mistrust()
    hear(past, range(20), LIARS - 0.4)
    assert not past.of(range(20)).any()


def test_both_kinds_of_evidence_survive_a_resume() -> None:
    past, again = Mistrust(), Mistrust()
    past.learn(range(20), LIARS, 0.5 + LIARS)
    past.observe([0, 2], values(0.5, 0.1))
    again.load_state_dict(past.state_dict())
    assert again == past
    assert again.contradict([11, 12]).tolist() == [False, True]
    assert again.of([0, 2, 12, 20]).tolist() == past.of([0, 2, 12, 20]).tolist()


def test_a_memory_that_is_read_again_says_the_same_to_the_bit() -> None:
    """Clients come in any order; saved they are sorted, and sums in another order differ in their last digit."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        past, again = Mistrust(), Mistrust()
        for _ in range(5):
            ids = torch.randperm(30, generator=generator)[:12].tolist()
            past.observe(ids, torch.randn(12, generator=generator, dtype=torch.float64))
            lies = torch.tensor([-1.0 if i % 3 else 1.0 for i in ids], dtype=torch.float64)
            hear(past, ids, lies + 0.1 * torch.randn(12, generator=generator, dtype=torch.float64))
        again.load_state_dict(past.state_dict())
        assert torch.equal(again.of(range(30)), past.of(range(30)))


@pytest.mark.parametrize("earlier", [{"known": values(0)}, {"cohorts": [[0]], "knowledge": values(0)}])
def test_a_memory_of_another_kind_is_refused(earlier: dict[str, object]) -> None:
    with pytest.raises(UserError, match="start anew"):
        Mistrust().load_state_dict({"ids": [0], "marks": torch.zeros(1, 2, dtype=torch.float64), **earlier})


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


def two_rounds(mistrust: float | None, resumed: bool = False) -> Aggregate:
    """A second round in which clients 0 … 3 send much the same; in the first, client 3 lied."""
    problem, rule = Problem(), SmartFL(mistrust=mistrust, server_epochs=50, restraint=0.0)
    rule(problem.updates(problem.around(1, 1, 1, -1)), problem.server())
    if resumed:
        state, rule = rule.state_dict(), SmartFL(mistrust=mistrust, server_epochs=50, restraint=0.0)
        rule.load_state_dict(state)
    rows = problem.good + 1e-3 * problem.noise[:4]
    return rule(problem.updates(rows, origin=problem.good), problem.server())


def test_who_lied_before_weighs_less_where_the_samples_cannot_tell() -> None:
    forgetful, remembering = two_rounds(0.0), two_rounds(None)
    assert forgetful.coefficients is not None
    assert forgetful.coefficients[3] > 0.9
    assert remembering.coefficients is not None
    assert remembering.coefficients[3] == 0
    assert "mistrusted" not in forgetful.info
    assert remembering.info["mistrusted"] == 1


def test_memory_is_of_ids_not_of_places() -> None:
    """Client 3, the last of four, lied. In the next round it comes second of the three who are not refused."""
    problem, rule = Problem(), SmartFL(server_epochs=50, restraint=0.0)
    rule(problem.updates(problem.around(1, 1, 1, -1)), problem.server())
    rows = torch.cat([torch.full((1, len(problem.good)), torch.nan), problem.good + 1e-3 * problem.noise[[3, 0, 1]]])
    updates = Updates.of(rows, origin=problem.good, spec=FlatSpec.of(problem.model), ids=[1, 3, 2, 9])
    found = rule(updates, problem.server()).coefficients
    assert found is not None
    weights = dict(zip(updates.ids, found.tolist(), strict=True))
    assert weights[1] == weights[3] == 0
    assert weights[2] + weights[9] == pytest.approx(1)


def test_clients_that_overflow_do_not_make_the_round_count_twice() -> None:
    """Four of seven: the median length is theirs, nobody is shortened, and the rule starts again without them."""
    problem, rule = Problem(), SmartFL(init="fedavg")
    rows = torch.cat([problem.around(1, 1, -1), torch.full((4, len(problem.good)), 3e38)])
    assert rule(problem.updates(rows), problem.server()).events
    assert rule.state_dict()["ids"] == [0, 1, 2]
    once = SmartFL(init="fedavg")
    once(problem.updates(problem.around(1, 1, -1)), problem.server())
    assert rule.state_dict()["cohorts"] == once.state_dict()["cohorts"]


def test_a_round_in_which_everybody_overflows_is_not_remembered() -> None:
    problem, rule = Problem(), SmartFL(init="fedavg")
    found = rule(problem.updates(torch.full((3, len(problem.good)), 3e38)), problem.server())
    assert found.coefficients is not None
    assert not found.coefficients.any()
    assert rule.state_dict() == {}


@pytest.mark.parametrize("linear", [True, False])
def test_knowledge_is_of_what_changed_since_the_global_model_on_balanced_samples(
    linear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a linear model on all samples, of a net on the first of them."""
    monkeypatch.setattr("smartfl.aggregators.hull.SOME", 40)
    problem, rule = Problem(), SmartFL(server_epochs=1)
    problem.model.linear_in_parameters = linear
    origin = 0.2 * problem.good
    updates = problem.updates(origin + problem.around(1, 1, -1), origin=origin)
    rule(updates, problem.server())
    labels = problem.proxy.labels
    assert labels is not None
    heard = slice(len(labels) if linear else 40)
    opinions = client_logits(updates, problem.model, problem.proxy.inputs)[:, heard]
    before = model_logits(updates, problem.model, origin, problem.proxy.inputs)[heard]
    weights = class_balance(labels, 3)[heard]
    expected = knowledge(opinions, before, labels[heard], weights)
    torch.testing.assert_close(rule.state_dict()["knowledge"], expected)
    torch.testing.assert_close(rule.state_dict()["breadth"], breadth(opinions, before, labels[heard]))
    assert rule.state_dict()["cohorts"] == [list(updates.ids)]
    assert not torch.allclose(knowledge(opinions, before, labels[heard], torch.ones_like(weights)), expected)
    assert expected[2] < 0 < expected[0]


@pytest.mark.parametrize("linear", [True, False])
def test_a_client_is_heard_in_four_rounds_and_a_newcomer_after_them(linear: bool) -> None:
    problem, rule = Problem(), SmartFL(server_epochs=1)
    problem.model.linear_in_parameters = linear
    for ids in [(0, 1, 2)] * 5 + [(0, 1, 9)]:
        rule(replace(problem.updates(problem.around(1, 1, -1)), ids=ids), problem.server())
    assert rule.state_dict()["cohorts"] == [[0, 1, 2]] * 4 + [[9]]
    assert len(rule.state_dict()["knowledge"]) == 13


def test_a_camp_of_a_linear_model_is_told_by_knowledge() -> None:
    """Four of eight lead the other way: against each of them is held all that can be."""
    problem, rule = Problem(), SmartFL(server_epochs=50)
    problem.model.linear_in_parameters = True
    origin = 0.2 * problem.good
    rows = origin + torch.stack([problem.good] * 4 + [-problem.good] * 4) * 0.1
    rows = rows + 1e-3 * problem.noise.repeat(2, 1)
    found = rule(problem.updates(rows, origin=origin), problem.server())
    assert rule._past.contradict(range(8)).tolist() == [False] * 4 + [True] * 4
    assert found.coefficients is not None
    assert found.coefficients[4:].sum() == 0


def test_the_cost_of_a_step_by_hand() -> None:
    """One sample of class 0, two classes, clients with logits (1, −1) and (−1, 1), p = (1, 0).
    q = softmax(1, −1) has q_1 = 1/(1 + e²) = 0.1192; g_i = Σ_c (q_c − y_c) z_ic, so g = (−0.2384, 0.2384) at s = 1.
    ζ = 1, λ = ½ √(2 ln 2) = 0.58871, and x = (g − gᵀp)/λ = (0, 0.4768/0.58871) = (0, 0.8100).
    What is already held against a client is no part of it."""
    model = nn.Linear(1, 2, bias=False)
    rows, inputs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.ones(1, 1)
    updates = Updates.of(rows, origin=torch.zeros(2), spec=FlatSpec.of(model))
    rule, proxy = SmartFL(), Proxy(inputs, torch.zeros(1, dtype=torch.int64), 2)
    rule._past.observe([0, 1], values(0, 5))
    x = rule._cost_of_steps(Hull(updates, model, inputs), values(1, 0), proxy)
    assert x.tolist() == pytest.approx([0, 0.8100], abs=1e-4)


def test_the_cost_of_a_step_at_the_best_scale_by_hand() -> None:
    """The same with logits (0.1, −0.1) and (−0.1, 0.1): λ = 0.058871, and ln(1 + e^(−0.2 s)) + λs is lowest where
    0.2 q_1 = λ, q_1 = 1/(1 + e^(0.2 s)): s = 5 ln(0.2/λ − 1) = 4.3717.  There g = (−sλ, sλ), and x = (0, 2s)."""
    model = nn.Linear(1, 2, bias=False)
    rows, inputs = torch.tensor([[0.1, -0.1], [-0.1, 0.1]]), torch.ones(1, 1)
    updates = Updates.of(rows, origin=torch.zeros(2), spec=FlatSpec.of(model))
    proxy = Proxy(inputs, torch.zeros(1, dtype=torch.int64), 2)
    hull, passes = Hull(updates, model, inputs), []
    hull.model.module.register_forward_pre_hook(lambda _, batch: passes.append(len(batch[0])))
    assert hull.logit_scale() == pytest.approx(0.1)
    passes.clear()
    x = SmartFL()._cost_of_steps(hull, values(1, 0), proxy)
    assert x.tolist() == pytest.approx([0, 8.7434], abs=1e-3)
    assert passes == [1]  # one pass, of the one sample


@pytest.mark.parametrize(("linear", "contradiction"), [(False, 0.4), (True, 1.6)])
def test_what_is_held_against_clients_is_charged_by_hand(linear: bool, contradiction: float) -> None:
    """Client 0 did damage once (e = 1, ē = ½, so (1 + ¼)/(1 + ½) = 0.8333; ¼/1½ = 0.1667 for client 1), client 2 is
    of those who contradict.  At κ = ½, λ = 0.1 and s = 8 they pay ½ · 0.1 · (0.8333, 0.1667, 8), the last four times
    that where logits are linear in the parameters."""
    problem, rule = Problem(), SmartFL(mistrust=0.5)
    rule._past.observe([0, 1], values(2, 0))
    hear(rule._past, [0, 1, 2, 4, 5, 6, 7], values(0.4, 0.4, -0.4, 0.4, 0.4, -0.4, -0.4))
    unknown = torch.zeros(1, 2)
    loss = CalibratedLoss(unknown, torch.zeros(1, dtype=torch.int64), torch.ones(1), torch.zeros(2), price=0.1)
    loss.scale = 8.0
    problem.model.linear_in_parameters = linear
    hull = Hull(problem.updates(problem.around(1, 1, 1)), problem.model, problem.proxy.inputs)
    assert rule._past.contradict([0, 1, 2, 3]).tolist() == [False, False, True, False]
    charged = [0.041667, 0.008333, contradiction]
    assert rule._dear(hull, loss, [0, 1, 2]).tolist() == pytest.approx(charged, abs=1e-6)


def test_memory_survives_a_resume_bit_for_bit() -> None:
    assert torch.equal(two_rounds(None).vector, two_rounds(None, resumed=True).vector)


@pytest.mark.parametrize("settings", [{"mistrust": 0.0}, {"variant": "literal"}, {"penalty": 0.0}])
def test_a_server_without_memory(settings: dict[str, object]) -> None:
    problem, rule = Problem(), SmartFL(**settings)  # type: ignore[arg-type]
    rule(problem.updates(problem.around(1, 1, -1)), problem.server())
    assert rule.state_dict() == {}


@pytest.mark.parametrize(
    "settings", [{"mistrust": -1}, {"mistrust": 2, "penalty": 0}, {"mistrust": 2, "variant": "literal"}]
)
def test_settings_that_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(UserError, match="mistrust = "):
        SmartFL(**settings)  # type: ignore[arg-type]


def test_a_majority_of_one_mind_is_known_by_where_it_leads() -> None:
    """Five of seven send the same step uphill. What a step towards them costs is the rule for all, so that marks say
    nothing; against each of them is held all that can be, against the two others nothing."""
    problem, rule = Problem(), SmartFL(server_epochs=50)
    origin = 0.2 * problem.good
    rows = origin + torch.stack([problem.good] * 2 + [-problem.good] * 5) * 0.1
    found = rule(problem.updates(rows, origin=origin), problem.server())
    assert found.coefficients is not None
    assert found.coefficients[2:].sum() == 0
    assert rule._past.of(range(7)).tolist()[2:] == [1] * 5
    assert max(rule._past.of(range(2)).tolist()) < 0.5
    assert "left_out" not in found.info  # two of seven are too few to do without them


@pytest.mark.parametrize("linear", [True, False])
def test_half_of_the_clients_search_by_themselves_if_the_others_contradict(linear: bool) -> None:
    """As if the others had not come: the same weights, to the bit, with what is held against clients 1 and 5."""
    problem = Problem()
    problem.model.linear_in_parameters = linear
    origin, good = 0.2 * problem.good, [1, 2, 5, 7]
    steps = torch.stack([problem.good if i in good else -problem.good for i in range(8)])
    steps = steps + 0.5 * problem.noise.repeat_interleave(2, dim=0)
    updates = problem.updates(origin + 0.1 * steps, origin=origin)
    rules = SmartFL(), SmartFL()
    for rule in rules:
        rule._past.observe([1, 5], values(2, 1))
    found = rules[0](updates, problem.server())
    alone = rules[1](updates.select(good), problem.server())
    assert found.coefficients is not None
    assert alone.coefficients is not None
    assert found.info["left_out"] == 4
    assert found.coefficients[good].tolist() == alone.coefficients.tolist()
    assert found.coefficients.sum() == pytest.approx(1)
    torch.testing.assert_close(found.vector, alone.vector)


def a_round_after_all_are_known(
    rows: torch.Tensor, origin: torch.Tensor, restraint: float = 0.0, linear: bool = False, breadth: float = 1.0
) -> Aggregate:
    """Of eight clients four are trusted, and the last four have contradicted in four rounds."""
    problem, rule = Problem(), SmartFL(restraint=restraint)
    problem.model.linear_in_parameters = linear
    for _ in range(HEARINGS):
        hear(rule._past, range(8), values(*[0.4] * 4, *[-0.4] * 4), breadth)
    return rule(problem.updates(rows, origin=origin), problem.server())


def test_who_contradicted_is_asked_again_where_the_others_would_make_the_model_worse() -> None:
    """One half of the clients stay where the model is, at the solution, and the other half lead away from it.  If the
    half that is trusted has few classes, it is not asked by itself."""
    problem = Problem()
    stay = problem.good + 1e-3 * problem.noise
    enough, needed = (
        a_round_after_all_are_known(torch.cat(halves), problem.good) for halves in ((stay, 0.5 * stay), (-stay, stay))
    )
    narrow = a_round_after_all_are_known(torch.cat((stay, 0.5 * stay)), problem.good, breadth=0.1)
    assert "left_out" not in narrow.info
    assert (enough.info["breadth"], narrow.info["breadth"]) == (1, 0.1)
    assert enough.info["left_out"] == 4
    assert "left_out" not in needed.info
    assert needed.coefficients is not None
    assert needed.coefficients[4:].sum() > 0.5


def test_a_rise_of_the_loss_that_may_be_chance_does_not_call_them_back() -> None:
    """The trusted ones lead a little away from the solution.  Where every class has weights of its own, chance is what
    all of them may gain together."""
    problem = Problem()
    away = torch.randn(len(problem.good), generator=torch.Generator().manual_seed(7))
    trusted = problem.good + 0.05 * problem.noise
    one, classes = False, True
    for far, chance, linear, left_out in (
        (0.1, 0.0, one, 4),
        (0.178, 0.0, one, None),
        (0.178, 0.5, one, 4),
        (0.2, 0.5, one, None),
        (0.2, 0.5, classes, 4),
        (0.3, 0.5, classes, None),
    ):
        rows = torch.cat([trusted + far * away, problem.good.expand(4, -1)])
        found = a_round_after_all_are_known(rows, problem.good, chance, linear)
        assert found.info.get("left_out") == left_out, (far, chance, linear)


@pytest.mark.parametrize(("linear", "left_out"), [(False, 4), (True, None)])
def test_rows_that_overflow_are_left_out_or_refused(linear: bool, left_out: int | None) -> None:
    """Who contradicted now sends what is finite and too large for any pass.  A linear model has everybody's logits, and
    no mix of them is finite: there they are refused, and the rule starts again without them."""
    problem = Problem()
    rows = torch.cat([problem.good + 1e-3 * problem.noise, torch.full_like(problem.noise, 3e38)])
    found = a_round_after_all_are_known(rows, 0.5 * problem.good, linear=linear)
    assert torch.isfinite(found.vector).all()
    assert found.info.get("left_out") == left_out
    assert bool(found.events) == linear
    assert found.coefficients is not None
    assert found.coefficients[4:].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("linear", [False, True])
def test_who_overflows_with_the_last_model_is_not_enough(linear: bool) -> None:
    """The model is lost, and those who are trusted send it back; who contradicted is all that is finite."""
    problem = Problem()
    lost = torch.full_like(problem.good, 3e38)
    rows = torch.cat([lost.expand(4, -1), problem.good + 1e-3 * problem.noise])
    found = a_round_after_all_are_known(rows, lost, linear=linear)
    assert "left_out" not in found.info
    assert found.coefficients is not None
    assert found.coefficients[:4].tolist() == [0, 0, 0, 0]
