"""Client algorithms in a client app's own training function."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flower_world import LoopGrid, arrays_of
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from torch import nn

from smartfl import Experiment, Simulation
from smartfl.aggregators import FedAvg
from smartfl.clients.fedprox import FedProx
from smartfl.clients.scaffold import Scaffold
from smartfl.experiment.build import build_models
from smartfl.experiment.federation import build_federation
from smartfl.experiment.resolved import Resolved
from smartfl.flower import AggregatorStrategy, ClientMod
from smartfl.flower.client import OWN
from smartfl.rng import torch_stream

CLIENTS = 3


def experiment(rounds, **client):
    tables = {
        "rounds": rounds,
        "data": {"clients": CLIENTS, "partition": "iid"},
        "model": {"name": "mlp", "hidden": [8]},
        "client": {"optimizer": "sgd", "lr": 0.1, "batch_size": 64, "participation": 1.0, **client},
        "aggregator": {"name": "fedavg"},
    }
    return Resolved.of(Experiment.of(tables)).experiment


def grid_of(chosen, algorithm, spoil=lambda client, reply: reply, more=()):
    """Clients that train with plain torch, as the simulator's do; nothing in them outlasts a message."""
    data = build_federation(chosen, "no")

    def node(client):
        def train(message, context):
            net = build_models(chosen, data.dataset.shape, data.dataset.num_classes)[0]
            net.load_state_dict(message.content["arrays"].to_torch_state_dict())
            optimizer = torch.optim.SGD(net.parameters(), lr=chosen.client.lr)
            index = data.shards[client]
            order = torch_stream(chosen.seed, "client", message.content["config"]["server-round"], client)
            for batch in torch.randperm(len(index), generator=order).split(chosen.client.batch_size):
                optimizer.zero_grad()
                inputs, labels = data.dataset.train[index[batch]], data.dataset.train_labels[index[batch]]
                nn.functional.cross_entropy(net(inputs), labels).backward()
                optimizer.step()
            metrics = MetricRecord({"num-examples": len(index)})
            content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
            return Message(content, reply_to=message)

        def answer(message):
            app = ClientApp(mods=[ClientMod(algorithm()), *more])
            app.train()(train)
            return spoil(client, app(message, SimpleNamespace(state=RecordDict())))

        return answer

    return LoopGrid({f"node-{i}": node(i) for i in range(CLIENTS)})


def deployed(chosen, algorithm, rounds, spoil=lambda client, reply: reply, more=(), **settings):
    data = build_federation(chosen, "no")
    net = build_models(chosen, data.dataset.shape, data.dataset.num_classes)[0]
    made = AggregatorStrategy(FedAvg(), model=net, client=algorithm(), fraction_evaluate=0.0, **settings)
    made.start(grid_of(chosen, algorithm, spoil, more), arrays_of(net), num_rounds=rounds, timeout=0.01)
    return made


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (lambda: FedProx(mu=0.5), {"algorithm": "fedprox", "mu": 0.5}),
        (lambda: FedProx(mu=0.5, decoupled=True), {"algorithm": "fedprox", "mu": 0.5, "decoupled": True}),
        (lambda: Scaffold(space="step"), {"algorithm": "scaffold", "space": "step"}),
        (lambda: Scaffold(space="grad"), {"algorithm": "scaffold", "space": "grad"}),
    ],
)
def test_the_mod_trains_as_the_simulator_does(algorithm, settings):
    chosen = experiment(3, **settings)
    simulation = Simulation(chosen, executor="serial")
    simulation.run()
    plain = Simulation(experiment(3), executor="serial")
    plain.run()
    made = deployed(chosen, algorithm, 3)
    vector = made.server.state.vectors[0]
    torch.testing.assert_close(vector, simulation.state.vectors[0], atol=1e-6, rtol=0)
    assert float((vector - plain.state.vectors[0]).abs().max()) > 1e-4  # and not as without the algorithm


def test_what_clients_keep_survives_a_restart_of_the_server(tmp_path):
    chosen = experiment(4, algorithm="scaffold", space="step")

    def scaffold():
        return Scaffold(space="step")

    whole = deployed(chosen, scaffold, 4)
    deployed(chosen, scaffold, 2, checkpoint=tmp_path / "run")
    again = deployed(chosen, scaffold, 4, checkpoint=tmp_path / "run")
    assert torch.equal(again.server.state.vectors[0], whole.server.state.vectors[0])
    assert torch.equal(again.server.state.shared, whole.server.state.shared)
    assert again.server.state.shared.any()


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (None, "its client app has no ClientMod"),
        (np.full(3, 1.0, dtype=np.float32), r"shape \(3,\)"),
        (np.nan, "is not finite"),
    ],
)
def test_a_client_that_sends_no_valid_state_is_refused(own, reason):
    def spoil(client, reply):
        if client == 1:
            size = reply.content[OWN]["state"].shape[0]
            del reply.content[OWN]
            if own is not None:
                value = np.full(size, own, dtype=np.float32) if np.isscalar(own) else own
                reply.content[OWN] = ArrayRecord({"state": Array(value)})
        return reply

    made = deployed(experiment(1, algorithm="scaffold", space="step"), lambda: Scaffold(space="step"), 1, spoil)
    assert [d.id for d in made.last_record.dropped] == [1]
    assert re.search(reason, made.last_record.dropped[0].reason)
    assert sorted(made.server.state.own) == [0, 2]


def test_local_differential_privacy_goes_behind_the_mod():
    """LocalDpMod takes a reply with one ArrayRecord: the mod adds what the client keeps after it."""
    chosen = experiment(1, algorithm="scaffold", space="step")
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=0.001, epsilon=1.0, delta=0.01)
    made = deployed(chosen, lambda: Scaffold(space="step"), 1, more=[noise])
    assert made.last_record.dropped == ()
    assert sorted(made.server.state.own) == [0, 1, 2]
    exact = deployed(chosen, lambda: Scaffold(space="step"), 1)
    assert 0 < float((made.server.state.vectors[0] - exact.server.state.vectors[0]).abs().max()) < 0.1


def test_a_second_optimiser_and_other_messages_are_left_alone():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def train(message, context):
        for parameter in (first, second, first, second):
            optimizer = optimizers[id(parameter)]
            parameter.grad = torch.ones(2)
            optimizer.step()
        return message

    optimizers = {id(p): torch.optim.SGD([p], lr=0.1) for p in (first, second)}
    message = SimpleNamespace(
        metadata=SimpleNamespace(message_type="train"), content=RecordDict(), has_error=lambda: False
    )
    ClientMod(FedProx(mu=1.0))(message, SimpleNamespace(), train)
    torch.testing.assert_close(second.detach(), torch.full((2,), 0.8))
    torch.testing.assert_close(first.detach(), torch.full((2,), 0.8 + 0.01))  # 0.1 · μ · 0.1 less in the second step
    first.grad = torch.ones(2)
    optimizers[id(first)].step()  # outside of a message there is no hook
    torch.testing.assert_close(first.detach(), torch.full((2,), 0.71))
    message.metadata.message_type = "evaluate"
    assert ClientMod(FedProx())(message, SimpleNamespace(), lambda m, c: "as it is") == "as it is"
