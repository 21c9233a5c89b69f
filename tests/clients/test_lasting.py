"""A lasting optimiser is one torch optimiser per client, kept."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from smartfl.clients.lasting import Lasting
from smartfl.clients.training import LocalTrainer, Recipe
from smartfl.data.dataset import Dense
from smartfl.models.convnet import convnet
from smartfl.rng import seeded
from smartfl.simulation import Simulation


@pytest.mark.parametrize("recipe", [Recipe("adam", batch_size=8), Recipe("sgd", lr=0.05, momentum=0.9, batch_size=8)])
def test_two_rounds_are_those_of_one_torch_optimizer(recipe):
    """The model is set back between the rounds, the optimiser is not; kernels come back in the spec's order."""
    with seeded(0, "model"):
        model, reference = convnet((1, 8, 8), 3), convnet((1, 8, 8), 3)
    images = torch.randint(0, 256, (8, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    inputs, labels = Dense(images, (0.5,), (0.5,)), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    algorithm = Lasting()
    trainer = LocalTrainer(model, recipe, algorithm)
    start = trainer.spec.flatten(reference).clone()
    own = torch.zeros(algorithm.state_size(trainer.spec.num_parameters, recipe.new_optimizer()))
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.SGD
    kept = kind(reference.parameters(), lr=recipe.lr, **({} if recipe.momentum == 0 else {"momentum": 0.9}))
    row = torch.empty_like(start)
    for _ in range(2):
        trainer.load(start)
        optimizer = recipe.new_optimizer()
        algorithm.begin(trainer.parameters, optimizer, None, trainer.inward_state(own))
        steps = trainer.train(inputs, labels, torch.Generator().manual_seed(1), optimizer)
        trainer.store(row)
        state = algorithm.finish(trainer.parameters, steps)
        assert state is not None
        own = trainer.outward_state(state)

        trainer.spec.load(reference, start)
        kept.zero_grad()
        order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
        F.cross_entropy(reference(inputs[order]), labels[order]).backward()
        kept.step()
        torch.testing.assert_close(row, trainer.spec.flatten(reference), rtol=1e-4, atol=1e-6)
    moments = [kept.state[p]["exp_avg" if recipe.optimizer == "adam" else "momentum_buffer"] for p in kept.state]
    torch.testing.assert_close(own[: len(start)], torch.cat([m.reshape(-1) for m in moments]), rtol=1e-3, atol=1e-6)


def test_a_client_goes_on_where_it_stopped(tiny):
    """After the last of three rounds every client has counted the steps of all rounds in which it took part."""
    simulation = Simulation(tiny(client={"algorithm": "lasting"}, rounds=3), executor="serial")
    size = simulation.specs[0].num_parameters
    batch = simulation.experiment.client.batch_size * 1.0
    expected: dict[int, float] = {}
    for record in simulation:
        for client in record.ids:
            samples = len(simulation.federation.shards[client])
            expected[client] = expected.get(client, 0) + -(-samples // batch)
    assert {client: float(own[-1]) for client, own in simulation.state.own.items()} == expected
    assert all(own.shape == (2 * size + 1,) for own in simulation.state.own.values())
    assert max(expected.values()) > min(expected.values())


def test_an_optimizer_without_memory_makes_it_plain(tiny):
    """SGD without momentum has nothing to remember: the models are those of plain training, up to how sums round."""
    ends = []
    for algorithm in ("plain", "lasting"):
        client = {"algorithm": algorithm, "optimizer": "sgd", "lr": 0.1}
        simulation = Simulation(tiny(client=client, model={"name": "convnet"}, rounds=2), executor="serial")
        simulation.run()
        assert not simulation.state.own
        ends.append(simulation.state.vectors[0])
    assert torch.equal(*ends)


def test_adam_with_a_memory_is_not_plain(tiny):
    ends = []
    for algorithm in ("plain", "lasting"):
        settings = {"algorithm": algorithm, "participation": 1.0}
        simulation = Simulation(tiny(client=settings, model={"name": "convnet"}, rounds=2), executor="serial")
        rounds = iter(simulation)
        next(rounds)
        first = simulation.state.vectors[0].clone()
        next(rounds)
        ends.append((first, simulation.state.vectors[0].clone()))
    assert torch.equal(ends[0][0], ends[1][0])  # zeros are the memory of a new optimiser
    assert not torch.allclose(ends[0][1], ends[1][1])
