from __future__ import annotations

from itertools import combinations, permutations
from math import factorial

import numpy as np
import pytest
import torch

from smartfl.aggregators.sfedavg import SFedAvg, shapley_values
from smartfl.errors import UserError


def glove_game(members):
    """Players 0, 1 own a left glove, 2 a right one: a pair is worth 1.  Shapley values 1/6, 1/6, 2/3."""
    return float(2 in members and len(members) > 1)


def along(game):
    return lambda order: (game(set(order[:k])) for k in range(len(order) + 1))


def test_all_orders_give_the_shapley_value_of_the_glove_game():
    got = shapley_values(permutations(range(3)), along(glove_game), 3)
    torch.testing.assert_close(got, torch.tensor([1 / 6, 1 / 6, 2 / 3]).double())


def test_agrees_with_the_subset_formula_on_a_random_game():
    """sv_i = Σ_{S ∌ i} |S|! (n−|S|−1)!/n! (V(S ∪ i) − V(S))."""
    rng = np.random.default_rng(0)
    worth = {frozenset(s): rng.normal() for k in range(5) for s in combinations(range(4), k)}
    expected = [
        sum(
            factorial(len(s)) * factorial(3 - len(s)) / 24 * (worth[frozenset(s) | {i}] - worth[frozenset(s)])
            for k in range(4)
            for s in combinations([j for j in range(4) if j != i], k)
        )
        for i in range(4)
    ]
    got = shapley_values(permutations(range(4)), along(lambda s: worth[frozenset(s)]), 4)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)
    assert float(got.sum()) == pytest.approx(worth[frozenset(range(4))] - worth[frozenset()])


def test_players_after_an_early_end_gain_nothing():
    assert shapley_values([(1, 0, 2)], lambda order: [0.25, 0.75], 3).tolist() == [0, 0.5, 0]


def relevance(rule):
    """φ of the clients that took part, ascending by id."""
    state = rule.state_dict()
    return np.array([phi for i, phi in zip(state["ids"], state["relevance"].tolist(), strict=True) if i >= 0])


def accuracy(w, vector):
    w.model.eval()
    return float(
        (w.updates.spec.functional_call(w.model, vector, w.proxy.inputs).argmax(1) == w.proxy.labels).double().mean()
    )


def test_the_result_is_the_uniform_mean_and_values_are_efficient(world):
    """Σ sv = acc(mean of all) − acc(w^t); with φ⁰ = 1/10 and rate 1 the relevance is sv itself."""
    w = world(clients=5, spread=1.0)
    rule = SFedAvg(rate=1.0)
    result = rule(w.updates, w.server(num_clients=10))
    mean = w.updates.matrix.mean(0)
    torch.testing.assert_close(result.vector, mean)
    gain = accuracy(w, mean) - accuracy(w, w.updates.origin)
    assert gain != 0
    assert relevance(rule).sum() == pytest.approx(gain, abs=1e-12)


def test_two_clients_by_hand(world):
    """Two orders of two: sv_0 = ½ (V(0) − V(∅)) + ½ (V(01) − V(1)), when both orders are drawn equally often;
    here the mean over the orders that the generator gives.
    """
    w = world(clients=2, spread=1.0)
    orders = [torch.randperm(2, generator=(g := w.server().generator)).tolist()]
    orders += [torch.randperm(2, generator=g).tolist() for _ in range(3)]
    empty, both = accuracy(w, w.updates.origin), accuracy(w, w.updates.matrix.mean(0))
    alone = [accuracy(w, row) for row in w.updates.matrix]
    expected = np.mean(
        [[alone[0] - empty, both - alone[0]] if o[0] == 0 else [both - alone[1], alone[1] - empty] for o in orders], 0
    )
    rule = SFedAvg(permutations=4, rate=0.25)
    rule(w.updates, w.server(num_clients=8))
    np.testing.assert_allclose(relevance(rule), 0.75 / 8 + 0.25 * expected, rtol=1e-12)


def test_four_clients_agree_with_averaging_prefixes_one_by_one(world):
    """A network with hidden units: unlike a linear model it notices when a sum takes the place of a mean."""
    w = world(batchnorm=True, clients=4, spread=1.0)
    generator = w.server().generator
    gains = np.zeros(4)
    for _ in range(6):
        before = accuracy(w, w.updates.origin)
        order = torch.randperm(4, generator=generator).tolist()
        for k, i in enumerate(order, start=1):
            after = accuracy(w, w.updates.matrix[order[:k]].mean(0))
            gains[i] += (after - before) / 6
            before = after
    rule = SFedAvg(permutations=6, rate=1.0)
    rule(w.updates, w.server(num_clients=8))
    np.testing.assert_allclose(relevance(rule), gains, atol=1e-12)


def test_sampling_probabilities_are_a_softmax_of_relevance(world):
    w = world(spread=1.0)
    rule = SFedAvg()
    assert rule.cohort_weights([3, 1, 2]).tolist() == pytest.approx([1 / 3] * 3)
    rule(w.updates, w.server(num_clients=6))
    phi = [*relevance(rule), 1 / 6, 1 / 6]
    expected = np.exp(phi) / np.exp(phi).sum()
    np.testing.assert_allclose(rule.cohort_weights(range(6)).numpy(), expected, rtol=1e-12)


def test_a_helpful_client_becomes_more_likely_than_a_harmful_one(world):
    """Client 0 sends weights that are always right (z = 9x), client 1 the opposite."""
    w = world(clients=2)
    right = torch.cat([9 * torch.eye(3).flatten(), torch.zeros(3)])
    rule = SFedAvg()
    rule(w.updates.with_matrix(torch.stack([right, -right])), w.server(num_clients=2))
    first, second = rule.cohort_weights([0, 1])
    assert first > second


def test_the_state_survives_a_round_trip(world):
    w = world(clients=5, spread=1.0)
    server = w.server(num_clients=9)
    rule, resumed = SFedAvg(), SFedAvg()
    rule(w.updates, server)
    resumed.load_state_dict(rule.state_dict())
    assert torch.equal(resumed.cohort_weights(range(9)), rule.cohort_weights(range(9)))
    some = w.updates.select([0, 2, 4])
    for r in (rule, resumed):
        r(some, w.server(num_clients=9))
    assert torch.equal(resumed.cohort_weights(range(9)), rule.cohort_weights(range(9)))


def test_truncation_saves_evaluations_and_zero_never_truncates(world, monkeypatch):
    w = world(clients=5, spread=1.0)
    calls = []
    import smartfl.aggregators.sfedavg as module

    real = module.model_logits
    monkeypatch.setattr(module, "model_logits", lambda *a: calls.append(1) or real(*a))
    SFedAvg(permutations=3)(w.updates, w.server())
    assert len(calls) == 2 + 3 * 4
    calls.clear()
    SFedAvg(permutations=3, truncation=2.0)(w.updates, w.server())
    assert len(calls) == 2


def test_an_overflowing_client_gets_no_weight_and_less_relevance(world):
    """φ ← 0.75/5 − 0.25 acc(w^t)."""
    w = world()
    huge = w.with_row(9, torch.full_like(w.updates.origin, 3e38))
    rule = SFedAvg()
    result = rule(huge, w.server(num_clients=5))
    torch.testing.assert_close(result.vector, w.updates.matrix.mean(0))
    assert result.coefficients.tolist() == [0.25] * 4 + [0]
    assert "9" in result.events[0]
    expected = 0.75 / 5 - 0.25 * accuracy(w, w.updates.origin)
    assert relevance(rule)[-1] == pytest.approx(expected)
    hopeless = rule(w.updates.with_matrix(torch.full_like(w.updates.matrix, 3e38)), w.server())
    assert torch.equal(hopeless.vector, w.updates.origin)


def test_a_nan_row_is_as_good_as_absent(world):
    w = world(batchnorm=True)
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.nan))
    first, second = SFedAvg(), SFedAvg()
    result = first(plus, w.server(num_clients=9))
    assert torch.equal(result.vector, second(w.updates, w.server(num_clients=9)).vector)
    assert torch.equal(first.cohort_weights(range(9)), second.cohort_weights(range(9)))


def test_missing_labels_and_bad_settings_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="labelled"):
        SFedAvg()(w.updates, w.unlabelled())
    for settings in ({"permutations": 0}, {"rate": 1.5}, {"truncation": -1.0}):
        with pytest.raises(UserError, match=next(iter(settings))):
            SFedAvg(**settings)
