"""The round loop: who takes part, who attacks, what is logged, and that SmartFL holds where FedAvg breaks."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch

from smartfl.aggregators.base import weighted
from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.feddf import FedDF
from smartfl.aggregators.momentum import Momentum
from smartfl.aggregators.proxy import client_logits
from smartfl.aggregators.reestimated import Reestimated
from smartfl.data.digits import digits
from smartfl.data.federation import Shards
from smartfl.errors import UserError
from smartfl.experiment.federation import build_federation
from smartfl.simulation import Simulation
from smartfl.types import Aggregate

LABEL_FLIP = {"name": "label_flip", "rate": 0.5}


def records(experiment, **options):
    return list(Simulation(experiment, executor="serial", **options))


def spy_on(simulation):
    """The updates that reach the rule, round by round."""
    seen = []

    class Spy(FedAvg):
        def aggregate(self, updates, server):
            seen.append(updates)
            return super().aggregate(updates, server)

    simulation.rules = [Spy() for _ in simulation.rules]
    return seen


def test_another_rule_sees_the_same_cohorts_attackers_and_partition(tiny):
    base = {"attack": LABEL_FLIP, "rounds": 3, "data": {"proxy": {"held_out": "always"}}}
    runs = [Simulation(tiny(aggregator={"name": name}, **base), executor="serial") for name in ("fedavg", "smartfl")]
    found = [[(r.ids, r.malicious) for r in run] for run in runs]
    assert found[0] == found[1]
    assert runs[0].federation.malicious == runs[1].federation.malicious
    assert torch.equal(runs[0].federation.shards.index, runs[1].federation.shards.index)
    assert torch.equal(runs[0].federation.proxy.inputs, runs[1].federation.proxy.inputs)


def test_clients_start_alike_whatever_the_server_does(tiny):
    """The first round's rows do not depend on the rule, its random numbers or the attack on other clients."""
    rows = []
    for change in ({}, {"aggregator": {"name": "median"}}, {"attack": LABEL_FLIP}):
        simulation = Simulation(tiny(data={"proxy": {"held_out": "always"}}, **change), executor="serial")
        seen = spy_on(simulation)
        record = next(iter(simulation))
        rows.append({c: seen[0].matrix[i].clone() for i, c in enumerate(record.ids) if c not in record.malicious})
    assert all(torch.equal(rows[0][c], rows[1][c]) for c in rows[0])
    assert 0 < len(rows[2]) < 4
    assert all(torch.equal(rows[0][c], rows[2][c]) for c in rows[2])


def test_a_client_trains_alike_whoever_else_takes_part(tiny):
    """Its random stream belongs to the client and the round, not to its place in the cohort."""
    rows = []
    for participation in (0.5, 1.0):
        simulation = Simulation(tiny(client={"participation": participation}), executor="serial")
        seen = spy_on(simulation)
        record = next(iter(simulation))
        rows.append({c: seen[0].matrix[i].clone() for i, c in enumerate(record.ids)})
    assert len(rows[0]) == 4
    assert all(torch.equal(rows[0][c], rows[1][c]) for c in rows[0])


def test_a_rule_without_proxy_data_leaves_all_samples_to_the_clients(tiny):
    assert int(build_federation(tiny(), "no").shards.sizes.sum()) == 1438
    assert int(build_federation(tiny(), "labelled").shards.sizes.sum()) == 1438 - 32
    held = build_federation(tiny(data={"proxy": {"held_out": "always"}}), "no")
    assert (len(held.proxy), int(held.shards.sizes.sum())) == (32, 1438 - 32)


def test_proxy_samples_belong_to_no_client(tiny):
    federation = build_federation(tiny(), "labelled")
    owned = federation.dataset.train[federation.shards.index].flatten(1)
    assert len(federation.shards.index.unique()) == len(federation.shards.index) == 1406
    everything = torch.cat([owned, federation.proxy.inputs.flatten(1)])
    whole = federation.dataset.train.values.flatten(1)
    assert torch.equal(everything.sum(dim=0).round(), whole.sum(dim=0).round())


@pytest.mark.parametrize(("rate", "count"), [(0.2, 16), (0.3, 24), (0.4, 32), (0.7, 56)])
def test_the_papers_numbers_of_fixed_attackers(tiny, rate, count):
    federation = build_federation(tiny(data={"clients": 80}, attack={"name": "label_flip", "rate": rate}), "no")
    assert len(federation.malicious) == count


def test_fixed_attackers_stay_and_the_cohort_is_a_draw(tiny):
    simulation = Simulation(tiny(attack=LABEL_FLIP, rounds=6), executor="serial")
    cohorts = set()
    for record in simulation:
        cohorts.add(record.ids)
        assert len(record.ids) == 4
        assert list(record.ids) == sorted(set(record.ids))
        assert set(record.malicious) == set(record.ids) & simulation.federation.malicious
    assert len(simulation.federation.malicious) == 4
    assert len(cohorts) > 1


@pytest.mark.parametrize(("rate", "clients", "count"), [(0.5, 8, 2), (0.4, 8, 2), (0.29, 200, 29), (0.57, 200, 57)])
def test_attackers_drawn_per_round_are_a_fixed_share_of_the_cohort(tiny, rate, clients, count):
    """The number nearest to AR·m of m = clients/2: 1.6 is 2, and 0.29·100, which is 28.999…, 29."""
    attack = {"name": "label_flip", "rate": rate, "who": "per_round"}
    simulation = Simulation(tiny(attack=attack, data={"clients": clients}), executor="serial")
    chosen = [simulation._malicious(simulation._sample_cohort(t), t) for t in (1, 2, 3)]
    assert [len(c) for c in chosen] == [count] * 3
    assert len(set(chosen)) > 1


@pytest.mark.parametrize("who", ["fixed", "per_round"])
@pytest.mark.parametrize("attack", ["label_flip", "omniscient"])
def test_attackers_who_begin_late_are_honest_until_then(tiny, attack, who):
    """Rounds 1 and 2 are, to the bit, those of a federation without attackers; round 3 is not."""
    lying = {"name": attack, "rate": 0.75, "who": who, "since": 3}
    late, honest = records(tiny(attack=lying, rounds=3)), records(tiny(rounds=3))
    assert [(r.accuracy, r.loss, r.malicious) for r in late[:2]] == [(r.accuracy, r.loss, ()) for r in honest[:2]]
    assert late[2].malicious
    assert late[2].loss != honest[2].loss


def test_malicious_mass_is_the_attackers_share_of_the_weights(tiny):
    for record in records(tiny(attack=LABEL_FLIP, rounds=3)):
        weights = dict(zip(record.ids, record.coefficients, strict=True))
        assert math.fsum(weights.values()) == pytest.approx(1)
        assert record.malicious_mass == pytest.approx(sum(weights[i] for i in record.malicious))
    assert records(tiny(aggregator={"name": "median"}))[0].malicious_mass is None
    assert records(tiny())[0].malicious_mass == 0


@pytest.mark.parametrize(("report", "value"), [("honest", None), ("max", max), ("median", None), (7, 7), (0, 0)])
def test_the_counts_that_attackers_report(tiny, report, value):
    attack = LABEL_FLIP | {"report": report}
    simulation = Simulation(tiny(attack=attack, data={"partition": "per_class", "alpha": 1.0}), executor="serial")
    seen = spy_on(simulation)
    record = next(iter(simulation))
    sizes = simulation.federation.shards.sizes
    honest = {i: float(sizes[i]) for i in record.ids}
    for i, count in zip(record.ids, seen[0].num_examples.tolist(), strict=True):
        if i not in record.malicious or report == "honest":
            assert count == honest[i]
        elif report == "max":
            assert count == max(honest.values())
        elif report == "median":
            assert count == sorted(honest.values())[1]
        else:
            assert count == value


def test_label_flip_happens_on_the_compromised_clients_only(tiny):
    """The attackers' rows are those of clients that train on (y + 1) mod 10, the others' are untouched."""
    attacked = Simulation(tiny(attack=LABEL_FLIP), executor="serial")
    plain = Simulation(tiny(), executor="serial")
    seen, honest = spy_on(attacked), spy_on(plain)
    record = next(iter(attacked))
    next(iter(plain))
    for i, client in enumerate(record.ids):
        same = torch.equal(seen[0].matrix[i], honest[0].matrix[i])
        assert same == (client not in record.malicious)


def test_evaluation_every_few_rounds_and_after_the_last(tiny):
    found = records(tiny(rounds=5, evaluate_every=2))
    assert [r.accuracy is not None for r in found] == [False, True, False, True, True]
    assert [r.loss is not None for r in found] == [False, True, False, True, True]
    every = records(tiny(rounds=5))
    assert [r.accuracy for r in found if r.accuracy is not None] == [every[i].accuracy for i in (1, 3, 4)]


def test_the_accuracy_is_that_of_the_global_model(tiny):
    simulation = Simulation(tiny(aggregator={"name": "smartfl", "server_epochs": 1}), executor="serial")
    last = list(simulation)[-1]
    data = digits()
    logits = simulation.predict(data.test.values)
    assert last.accuracy == pytest.approx(float((logits.argmax(dim=1) == data.test_labels).float().mean()))
    loss = torch.nn.functional.cross_entropy(logits, data.test_labels)
    assert last.loss == pytest.approx(loss.item(), rel=1e-5)
    proxy = simulation.federation.proxy
    expected = torch.nn.functional.cross_entropy(simulation.predict(proxy.inputs), proxy.labels).item()
    assert last.proxy_loss == pytest.approx(expected)


def test_the_loop_can_be_left_and_taken_up(tiny):
    simulation = Simulation(tiny(rounds=3), executor="serial")
    first = next(iter(simulation))
    rest = list(simulation)
    assert [r.round for r in (first, *rest)] == [1, 2, 3]
    whole = Simulation(tiny(rounds=3), executor="serial")
    assert [r.accuracy for r in whole] == [r.accuracy for r in (first, *rest)]
    assert torch.equal(whole.state.vectors[0], simulation.state.vectors[0])


def test_back_at_the_start_the_rule_remembers_nothing(tiny):
    simulation = Simulation(tiny(rounds=2, aggregator={"name": "smartfl", "server_epochs": 2}), executor="serial")
    start = deepcopy(simulation.state)
    first = list(simulation)
    assert simulation.rules[0].state_dict()
    simulation.restore(start)
    assert simulation.rules[0].state_dict() == {}
    assert [r.coefficients for r in simulation] == [r.coefficients for r in first]


def test_the_result_has_final_best_and_the_last_ten(tiny):
    accuracies = [r.accuracy for r in records(tiny(rounds=12))]
    result = Simulation(tiny(rounds=12), executor="serial").run()
    assert (result.final, result.best, result.rounds) == (accuracies[-1], max(accuracies), 12)
    assert result.last_ten == pytest.approx(sum(accuracies[-10:]) / 10)


def test_the_global_generators_do_not_matter_and_are_not_touched(tiny):
    torch.manual_seed(1)
    one = [r.accuracy for r in records(tiny())]
    after = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(2), after)
    torch.manual_seed(2)
    assert [r.accuracy for r in records(tiny())] == one


def test_a_round_without_a_valid_client_keeps_the_model(tiny):
    """A learning rate of 1e30 makes every row NaN."""
    simulation = Simulation(tiny(client={"optimizer": "sgd", "lr": 1e30}), executor="serial")
    start = simulation.state.vectors[0].clone()
    record = next(iter(simulation))
    assert [d.id for d in record.dropped] == list(record.ids)
    assert record.coefficients == (0, 0, 0, 0)
    assert "the global model is kept" in record.events[0]
    assert torch.equal(simulation.state.vectors[0], start)
    assert record.accuracy is not None


HETERO = [{"name": "mlp", "hidden": [8]}, {"name": "logistic"}, {"name": "mlp", "hidden": [8]}]


def test_architectures_go_round_and_each_group_has_its_own_model(tiny):
    """i mod 3 among 8 clients; equal architectures are still two groups; each group's weights sum to 1/3."""
    simulation = Simulation(tiny(model=HETERO, client={"participation": 1.0}), executor="serial")
    seen = spy_on(simulation)
    record = next(iter(simulation))
    assert [u.ids for u in seen] == [(0, 3, 6), (1, 4, 7), (2, 5)]
    assert [u.spec.size for u in seen] == [8 * 65 + 90, 650, 8 * 65 + 90]
    weights = dict(zip(record.ids, record.coefficients, strict=True))
    for group in seen:
        assert math.fsum(weights[i] for i in group.ids) == pytest.approx(1 / 3)
    for group, vector in zip(seen, simulation.state.vectors, strict=True):
        torch.testing.assert_close(vector, group.weights.float() @ group.matrix)
    batch = digits().test.values[:5]
    each = [
        s.functional_call(m, v, batch)
        for s, m, v in zip(simulation.specs, simulation.models, simulation.state.vectors, strict=True)
    ]
    torch.testing.assert_close(simulation.predict(batch), torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("wrapper", [lambda rule: rule, Momentum, lambda rule: Reestimated(Momentum(rule))])
def test_groups_share_one_teacher_whatever_is_around_a_rule_that_distils(tiny, wrapper):
    """The mean logits of all clients, of both architectures, for each group."""
    seen = []

    class Spy(FedDF):
        def aggregate(self, updates, server):
            seen.append((updates, server))
            return weighted(updates, updates.weights)

    simulation = Simulation(tiny(model=HETERO[:2], data={"proxy": {"held_out": "always"}}), executor="serial")
    simulation.rules = [wrapper(Spy()) for _ in simulation.rules]
    next(iter(simulation))
    logits = [client_logits(updates, server.model, server.proxy.inputs) for updates, server in seen]
    for _, server in seen:
        torch.testing.assert_close(server.teacher, torch.cat(logits).double().mean(dim=0))


def test_a_group_without_a_participant_keeps_its_model(tiny):
    simulation = Simulation(tiny(model=HETERO, client={"participation": 0.125}), executor="serial")
    start = [v.clone() for v in simulation.state.vectors]
    record = next(iter(simulation))
    (client,) = record.ids
    for g in range(3):
        assert torch.equal(simulation.state.vectors[g], start[g]) == (g != client % 3)
    assert sum("took part" in e for e in record.events) == 2


def test_a_small_group_caps_what_was_right_for_the_planned_one(tiny):
    """Krum(f = 1) needs 5 rows: planned are ⌊10/2⌋ of each architecture, the draws are uneven."""
    experiment = tiny(
        rounds=4,
        data={"clients": 20},
        model=[{"name": "mlp", "hidden": [4]}, {"name": "logistic"}],
        aggregator={"name": "krum", "f": 1},
    )
    found = records(experiment)
    sizes = [sum(i % 2 == g for i in record.ids) for record in found for g in range(2)]
    assert min(sizes) < 5 < max(sizes)
    assert sum("f = 1 capped to 0" in e for record in found for e in record.events) == sum(s < 5 for s in sizes)


def test_clients_without_samples_never_take_part(tiny):
    shards = Shards.of([torch.arange(3).numpy(), torch.arange(0).numpy(), torch.arange(3, 8).numpy()])
    assert (len(shards), shards.sizes.tolist(), shards[2].tolist()) == (3, [3, 0, 5], [3, 4, 5, 6, 7])
    simulation = Simulation(
        tiny(data={"clients": 60, "partition": "per_class", "alpha": 0.01}, rounds=2), executor="serial"
    )
    eligible = set(simulation.federation.eligible)
    assert len(eligible) < 60
    for record in simulation:
        assert set(record.ids) <= eligible


def test_integer_buffers_are_the_largest_among_the_clients_that_count(tiny):
    """180 samples in batches of 32 are 6 steps of BatchNorm's counter a round."""
    simulation = Simulation(tiny(model={"name": "resnet8"}, client={"participation": 0.25}), executor="serial")
    for record in simulation:
        assert simulation.state.integers == [[6 * record.round] * 9]


def test_integer_buffers_of_clients_without_weight_do_not_count(tiny):
    """Shards of different sizes make different numbers of steps; only the smallest client gets weight."""

    class Smallest(FedAvg):
        def aggregate(self, updates, server):
            p = torch.zeros(len(updates), dtype=torch.float64)
            p[updates.num_examples.argmin()] = 1
            return Aggregate(updates.mix(p), p)

    experiment = tiny(model={"name": "resnet8"}, data={"partition": "per_class", "alpha": 0.5, "clients": 12})
    simulation = Simulation(experiment, executor="serial")
    simulation.rules = [Smallest()]
    record = next(iter(simulation))
    steps = [math.ceil(int(simulation.federation.shards.sizes[i]) / 32) for i in record.ids]
    assert min(steps) < max(steps)
    assert simulation.state.integers == [[min(steps)] * 9]


def test_rules_that_need_labels_do_not_get_them_unless_they_say_so(tiny):
    given = []

    class Unlabelled(FedAvg):
        needs_proxy = "unlabelled"

        def aggregate(self, updates, server) -> Aggregate:
            given.append(server.proxy.labels)
            return super().aggregate(updates, server)

    simulation = Simulation(tiny(data={"proxy": {"held_out": "always"}}), executor="serial")
    simulation.rules = [Unlabelled()]
    assert next(iter(simulation)).proxy_loss is not None
    assert given == [None]


def test_on_mps_the_server_stays_on_the_cpu(tiny):
    """MPS has no float64; nothing of the server may need it, so this runs up to the first client anywhere."""
    simulation = Simulation(tiny(aggregator={"name": "smartfl"}), executor="serial", device="mps")
    places = {p.device.type for p in simulation.models[0].parameters()} | {
        v.device.type for v in simulation.state.vectors
    }
    assert places == {simulation._server(0, 1).proxy.inputs.device.type} == {"cpu"}


def test_more_clients_than_samples_are_refused(tiny):
    with pytest.raises(UserError, match=r"data\.clients = 1439 is more than the 1438"):
        Simulation(tiny(data={"clients": 1439}), executor="serial")


def test_smartfl_holds_where_fedavg_breaks(tiny):
    """Half of the clients train on (y + 1) mod 10; six rounds on digits."""
    base = {
        "rounds": 6,
        "data": {"clients": 20, "proxy": {"size": 64}},
        "client": {"lr": 0.02, "epochs": 2, "participation": 0.5},
        "attack": LABEL_FLIP,
        "model": {"name": "mlp", "hidden": [32]},
    }
    fedavg = records(tiny(aggregator={"name": "fedavg"}, **base))[-1]
    smartfl = records(tiny(aggregator={"name": "smartfl"}, **base))[-1]
    assert smartfl.accuracy > fedavg.accuracy + 0.15
    assert smartfl.malicious_mass < 0.5 * fedavg.malicious_mass
