"""The strategy in process: who takes part, who counts, restarts, and what is left behind."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flower_world import FAULTS, HONEST, LoopGrid, arrays_of, federation, honest, model, samples
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from smartfl.aggregators import FedAvg, FedAvgM, Krum, Median, SmartFL
from smartfl.aggregators.base import Aggregator
from smartfl.errors import UserError
from smartfl.flower import AggregatorStrategy
from smartfl.flower.grid import PatientGrid
from smartfl.flower.replies import Inbox
from smartfl.flower.roster import Roster
from smartfl.records.run import RunRecord
from smartfl.types import Aggregate, Dropped


def strategy(rule, **settings):
    given = {"model": model(), "proxy": samples(1), "min_available_nodes": 1, "fraction_evaluate": 0.0, **settings}
    return AggregatorStrategy(rule, **given)


def run(made, grid, rounds=2, **settings):
    return made.start(grid, arrays_of(model()), num_rounds=rounds, timeout=0.01, **settings)


def bits(result):
    return {k: a.numpy().tobytes() for k, a in result.arrays.items()}


def test_fedavg_is_the_weighted_mean_by_hand():
    grid = LoopGrid({"a": honest(0, 10), "b": honest(1, 30)})
    result = run(strategy(FedAvg()), grid, rounds=1)
    start = arrays_of(model())
    rows = [honest(i)(grid.sent[i]).content["arrays"]["0.weight"].numpy() for i in (0, 1)]
    np.testing.assert_allclose(result.arrays["0.weight"].numpy(), (10 * rows[0] + 30 * rows[1]) / 40, rtol=1e-6)
    assert not np.array_equal(result.arrays["0.weight"].numpy(), start["0.weight"].numpy())


@pytest.mark.parametrize(("counts", "share"), [("reported", 0.75), ("equal", 0.5), (10, 0.5), (20, 2 / 3), (1e9, 0.75)])
def test_whose_word_is_taken_for_sample_counts(counts, share):
    made = strategy(FedAvg(), counts=counts)
    run(made, LoopGrid({"a": honest(0, 10), "b": honest(1, 30)}), rounds=1)
    assert made.last_record.coefficients[1] == pytest.approx(share)


@pytest.mark.parametrize("counts", ["fair", 0, -1, float("inf")])
def test_counts_that_mean_nothing(counts):
    with pytest.raises(UserError, match=r"counts = .*accepted are 'reported', 'equal' and a largest count above 0"):
        strategy(FedAvg(), counts=counts)


def test_equal_counts_need_no_num_examples():
    made = strategy(FedAvg(), counts="equal")
    run(made, federation(FAULTS["no num-examples"]))
    assert made.last_record.dropped == ()
    assert len(made.last_record.ids) == HONEST + 1


def test_a_rule_without_its_samples_is_refused_before_anything_starts():
    with pytest.raises(UserError, match="SmartFL needs labelled samples"):
        strategy(SmartFL(), proxy=None)
    with pytest.raises(UserError, match=r"accepted is an object such as SmartFL\(\)"):
        strategy(SmartFL)


def test_samples_may_come_anew_each_round():
    asked = []

    def fresh(t):
        asked.append(t)
        return samples(t)

    run(strategy(SmartFL(server_epochs=1), proxy=fresh), federation(), rounds=3)
    assert asked == [1, 2, 3]


def test_refused_nodes_come_off_the_attackers_that_a_rule_assumes_and_absent_ones_do_not():
    for fault, f in (("NaN", 1.0), ("missing key", 1.0), ("no reply", 2.0), ("app raises", 2.0)):
        made = strategy(Krum(f=2))
        run(made, LoopGrid({**{f"n{i}": honest(i) for i in range(8)}, "z": FAULTS[fault].node(8)}), rounds=1)
        assert made.last_record.info["f"] == f, fault


def test_integer_buffers_are_the_median():
    result = run(strategy(Median()), federation(FAULTS["counter of 2^62"]), rounds=1)
    assert result.arrays["1.num_batches_tracked"].numpy() == 3


def test_nobody_left_keeps_the_model():
    everyone = LoopGrid({f"n{i}": FAULTS["NaN"].node(i) for i in range(3)})
    made = strategy(FedAvg())
    result = run(made, everyone)
    assert bits(result) == {k: a.numpy().tobytes() for k, a in arrays_of(model()).items()}
    assert len(made.last_record.dropped) == 3


class Failing(Aggregator):
    """Fails in round 2."""

    def __init__(self, error):
        self.error = error

    def aggregate(self, updates, server):
        if server.round == 2:
            if self.error is None:
                return Aggregate(updates.origin * torch.inf)
            raise self.error
        return Aggregate(updates.matrix.mean(dim=0))


@pytest.mark.parametrize("error", [RuntimeError("boom"), UserError("f = 3 is too large"), None])
def test_a_rule_that_fails_keeps_the_model_and_the_run_goes_on(error):
    made = strategy(Failing(error))
    events = []
    seen = []

    def evaluate(t, arrays):
        seen.append(arrays["0.weight"].numpy())
        events.append(None if made.last_record is None else made.last_record.events)

    run(made, federation(), rounds=3, evaluate_fn=evaluate)
    assert np.array_equal(seen[1], seen[2])
    assert not np.array_equal(seen[2], seen[3])
    assert "the global model is kept" in events[3][0]


def test_a_wrong_setting_of_the_rule_is_told_in_the_first_round():
    with pytest.raises(UserError, match="f = 5 is too large for 6 clients"):
        run(strategy(Krum(f=5)), federation())


def test_momentum_that_overflowed_is_forgotten():
    """FedAvgM keeps what a round did; a round that is not finite must not stay in it."""
    made = strategy(FedAvgM(beta=0.9))
    grid = federation(FAULTS["1e38"])
    calls = []
    faulty = grid.nodes[f"node-{HONEST}"]
    grid.nodes[f"node-{HONEST}"] = lambda m: (calls.append(m), faulty(m) if len(calls) == 1 else honest(HONEST)(m))[1]
    result = run(made, grid, rounds=4)
    assert all(np.isfinite(a.numpy()).all() for a in result.arrays.values())
    assert made.last_record.events == ()


# -- who takes part ---------------------------------------------------------------------------------------------


def test_the_choice_of_nodes_is_seeded_and_by_name():
    """Flower's ids differ between the runs; the same nodes are asked in the same rounds."""

    def asked(seed, first):
        grid = LoopGrid({f"node-{i}": honest(i) for i in range(6)}, first=first)
        made = strategy(FedAvg(), seed=seed, fraction_train=0.5)
        run(made, grid, rounds=4)
        return [(grid._ids[m.metadata.dst_node_id], m.content["config"]["server-round"]) for m in grid.sent]

    first = asked(0, 2**62)
    assert asked(0, 2**61) == first
    assert asked(1, 2**62) != first
    assert len(first) == 12


def test_nodes_without_name_are_asked_for_their_partition(tmp_path):
    def node(claims):
        def reply(message):
            if message.metadata.message_type == "query.partition":
                return Message(RecordDict({"m": MetricRecord({"partition-id": claims})}), reply_to=message)
            return honest(0)(message)

        return reply

    grid = LoopGrid({"x": node(2), "y": node(0), "z": node(7), "liar": node(7)})
    nodes = grid.get_nodes()
    grid.get_nodes = lambda: [SimpleNamespace(node_id=n.node_id, name="", public_key=b"random") for n in nodes]
    present = Roster(tmp_path / "nodes.json").present(grid)
    by_name = {grid._ids[node]: client for client, node in present.items()}
    assert (by_name["x"], by_name["y"]) == (2, 0)
    assert {by_name["z"], by_name["liar"]} == {1, 3} or not {by_name["z"], by_name["liar"]} & {0, 2, 7}


def test_a_nodes_id_outlasts_restarts(tmp_path):
    pem = b"-----BEGIN PUBLIC KEY-----\nabc"

    def present(nodes):
        grid = SimpleNamespace(get_nodes=lambda: [SimpleNamespace(**n) for n in nodes])
        return {node: client for client, node in Roster(tmp_path / "nodes.json").present(grid).items()}

    before = present([{"node_id": 5, "name": "b"}, {"node_id": 2**63 + 9, "name": "", "public_key": pem}])
    after = present(
        [{"node_id": 1, "name": "a"}, {"node_id": 77, "name": "", "public_key": pem}, {"node_id": 6, "name": "b"}]
    )
    assert after == {6: before[5], 77: before[2**63 + 9], 1: 2}
    (tmp_path / "nodes.json").write_text('{"name:a": 0, "name:b": 0}')
    with pytest.raises(UserError, match="gives two nodes the same id"):
        Roster(tmp_path / "nodes.json")


def test_a_round_does_not_wait_for_ever_for_a_dead_node(monkeypatch):
    monkeypatch.setattr("smartfl.flower.strategy.PATIENCE", 0.0)
    monkeypatch.setattr("smartfl.flower.roster.time.sleep", lambda s: None)
    grid = federation()
    made = strategy(FedAvg(), min_available_nodes=HONEST)

    def evaluate(t, arrays):
        if t == 1:
            grid._ids.pop(next(iter(grid._ids)))

    run(made, grid, rounds=3, evaluate_fn=evaluate)
    assert len(made.last_record.ids) == HONEST - 1


def test_only_the_reply_to_our_message_counts_and_only_once():
    grid = federation()
    sent = run_messages(grid)
    replies = [honest(i)(m) for i, m in enumerate(sent)]
    twice = [replies[0], *replies]
    foreign = honest(0)(sent[0])
    foreign.metadata.__dict__["_reply_to_message_id"] = "somebody else's"
    inbox = Inbox.of([foreign, *twice], list(enumerate(sent)), {}, lambda content: content)
    assert list(inbox.found) == list(range(HONEST))
    assert (inbox.refused, inbox.absent) == ((), ())


def run_messages(grid):
    run(strategy(FedAvg()), grid, rounds=1)
    return grid.sent[:HONEST]


def test_a_reply_that_cannot_be_decoded_takes_no_other_with_it_and_a_lost_connection_is_told():
    grid = federation(FAULTS["torn objects"])
    made = strategy(FedAvg())
    run(made, grid)
    assert len(made.last_record.ids) == HONEST + 1
    assert "cannot be decoded: Broken" in made.last_record.dropped[0].reason

    def lost(ids):
        raise ConnectionError("gone")

    grid.pull_messages = lost
    with pytest.raises(ConnectionError):
        PatientGrid(grid).send_and_receive(grid.sent[:1], timeout=0.01)


# -- evaluation, records, restarts ------------------------------------------------------------------------------


def test_what_nodes_report_of_the_model_and_what_the_server_finds(tmp_path):
    made = strategy(FedAvg(), fraction_evaluate=1.0, checkpoint=tmp_path / "run")
    result = run(made, federation(FAULTS["NaN samples"]), evaluate_fn=lambda t, a: MetricRecord({"accuracy": t / 10}))
    assert result.evaluate_metrics_clientapp[2]["loss"] == pytest.approx(1.0)
    assert {t: m["accuracy"] for t, m in result.evaluate_metrics_serverapp.items()} == {0: 0.0, 1: 0.1, 2: 0.2}
    assert made.last_record.accuracy == 0.2
    assert made.last_record.loss == pytest.approx(1.0)  # the server found none, so it is what nodes say


def test_a_restarted_server_goes_on_to_the_same_bits(tmp_path):
    """Six rounds at once, or two, then four by another process whose app drew other initial weights."""
    settings = {"min_available_nodes": HONEST, "fraction_train": 0.7}

    def rule():
        return SmartFL(server_epochs=2)

    whole = run(strategy(rule(), checkpoint=tmp_path / "whole", **settings), federation(), rounds=6)
    run(strategy(rule(), checkpoint=tmp_path / "run", **settings), federation(), rounds=2)
    other = ArrayRecord({k: Array(np.asarray(a.numpy() + 1)) for k, a in arrays_of(model()).items()})
    grid = LoopGrid({f"node-{i}": honest(i) for i in reversed(range(HONEST))}, first=2**60)
    again = strategy(rule(), checkpoint=tmp_path / "run", **settings)
    tested = []
    result = again.start(
        grid, other, num_rounds=6, timeout=0.01, evaluate_fn=lambda t, a: tested.append(t) or MetricRecord({"loss": 1})
    )
    assert bits(result) == bits(whole)
    assert tested == [3, 4, 5, 6]
    assert sorted(result.evaluate_metrics_serverapp) == [3, 4, 5, 6]
    assert sorted(result.train_metrics_clientapp) == [3, 4, 5, 6]
    assert {m.content["config"]["server-round"] for m in grid.sent} == {3, 4, 5, 6}
    done = strategy(rule(), checkpoint=tmp_path / "run", **settings).start(LoopGrid({}), other, num_rounds=6)
    assert bits(done) == bits(whole)


def test_frozen_weights_stay_those_of_the_first_start(tmp_path):
    def frozen():
        net = model()
        net[0].requires_grad_(False)
        return net

    run(strategy(FedAvg(), model=frozen(), checkpoint=tmp_path / "run"), federation(), rounds=1)
    other = ArrayRecord({k: Array(np.asarray(a.numpy() + 1)) for k, a in arrays_of(model()).items()})
    again = strategy(FedAvg(), model=frozen(), checkpoint=tmp_path / "run")
    result = again.start(federation(), other, num_rounds=2, timeout=0.01)
    np.testing.assert_array_equal(result.arrays["0.weight"].numpy(), arrays_of(model())["0.weight"].numpy())
    assert torch.equal(again.server.model[0].weight, model()[0].weight)


def test_a_run_goes_on_with_more_rounds_fewer_nodes_and_other_samples(tmp_path):
    run(strategy(SmartFL(server_epochs=1), checkpoint=tmp_path / "run", min_available_nodes=HONEST), federation())
    fewer = {"checkpoint": tmp_path / "run", "min_available_nodes": 3, "proxy": samples(5, 30), "fraction_train": 0.5}
    made = strategy(SmartFL(server_epochs=1), **fewer)
    run(made, federation(), rounds=5)
    assert made.last_record.round == 5
    data = RunRecord.read(tmp_path / "run")
    assert (data.finished, len(data.rounds), data.experiment["data"]["proxy"]["size"]) == (True, 5, 30)


def test_another_rule_does_not_go_on_with_the_same_directory(tmp_path):
    run(strategy(Krum(f=1), checkpoint=tmp_path / "run"), federation(), rounds=1)
    with pytest.raises(UserError, match=r"has another experiment \(aggregator.f = 1 there, 2 here\)"):
        run(strategy(Krum(f=2), checkpoint=tmp_path / "run"), federation(), rounds=1)


def test_the_record_is_a_run_directory_that_reports_read(tmp_path):
    made = strategy(SmartFL(server_epochs=2), checkpoint=tmp_path / "run")
    run(made, federation(FAULTS["wrong shape"]), evaluate_fn=lambda t, a: MetricRecord({"accuracy": 0.5, "loss": 1.5}))
    data = RunRecord.read(tmp_path / "run")
    assert (data.finished, data.final, data.method[:7]) == (True, 0.5, "SmartFL")
    assert data.rounds[1].dropped == (Dropped(HONEST, "'0.weight' of its model has shape (3, 4), (4, 3) expected"),)
    assert data.rounds[1].ids == tuple(range(HONEST + 1))
    assert data.rounds[1].coefficients[HONEST] == 0
    assert data.environment["packages"]["flwr"]
    names = json.loads((tmp_path / "run" / "nodes.json").read_text())
    assert names["name:node-0"] == 0
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_the_log_names_weights_and_reasons(caplog):
    with caplog.at_level("INFO", logger="flwr"):
        run(strategy(FedAvg()), federation(FAULTS["NaN"]), rounds=1)
    assert "node-0 0.167" in caplog.text
    assert f"without node-{HONEST}: value " in caplog.text
