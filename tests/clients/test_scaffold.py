"""ALGORITHMS.md 3.3: the worked example of SCAFFOLD, its invariants, and its state in a real simulation."""

from __future__ import annotations

import pytest
import torch

from smartfl.clients.scaffold import Scaffold
from smartfl.optimizers import FlatSGD
from smartfl.simulation import Simulation

TARGETS = {1: 1.0, 2: -3.0}  # F_1 = ½(x − 1)², F_2 = ½(x + 3)²


def local_round(algorithm, x, shared, own, target, lr=0.1, steps=2):
    """K full-gradient SGD steps through the hooks; returns the iterates, the raw gradients and the new control."""
    w = torch.tensor([x], dtype=torch.float64)
    states = [torch.tensor([value], dtype=torch.float64) for value in (shared, own)]
    algorithm.begin(w, FlatSGD(lr), *states)
    iterates, gradients = [], []
    for _ in range(steps):
        g = w - target
        gradients.append(g.item())
        algorithm.before_step(w, g)
        w -= lr * g
        algorithm.after_step(w)
        iterates.append(w.item())
    return iterates, gradients, algorithm.finish(w, steps)


@pytest.mark.parametrize("space", ["step", "grad"])
def test_worked_example(space):
    """Round 1: y = 0.19, −0.57; c = −0.95, 2.85 → x = −0.19, c = 0.95. Round 2: y₁ = −0.261, −0.3249; c₁ = −1.2255."""
    algorithm = Scaffold(space)
    ends, controls = [], []
    for target in TARGETS.values():
        iterates, _, control = local_round(algorithm, 0.0, 0.0, 0.0, target)
        ends.append(iterates[-1])
        controls.append(control)
    assert ends == pytest.approx([0.19, -0.57])
    assert [c.item() for c in controls] == pytest.approx([-0.95, 2.85])
    after = torch.stack(controls)
    shared = algorithm.merge(torch.zeros(1, dtype=torch.float64), torch.zeros_like(after), after, num_clients=2)
    assert shared.item() == pytest.approx(0.95)
    iterates, _, control = local_round(algorithm, sum(ends) / 2, 0.95, -0.95, TARGETS[1])
    assert iterates == pytest.approx([-0.261, -0.3249])
    assert control.item() == pytest.approx(-1.2255)


@pytest.mark.parametrize("space", ["step", "grad"])
@pytest.mark.parametrize("steps", [1, 3, 7])
def test_with_sgd_the_new_control_is_the_mean_raw_gradient(space, steps):
    _, gradients, control = local_round(Scaffold(space), 0.4, 0.3, -0.8, 1.0, steps=steps)
    assert control.item() == pytest.approx(sum(gradients) / steps)


def test_the_server_divides_by_all_clients_not_by_the_cohort():
    """c = 1, changes 2 and 4 of 2 participants among 10 clients: 1 + 6/10."""
    before, after = torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0], [5.0]])
    assert Scaffold().merge(torch.tensor([1.0]), before, after, num_clients=10).tolist() == pytest.approx([1.6])


def test_without_a_step_the_control_stays():
    algorithm = Scaffold()
    algorithm.begin(torch.ones(2), FlatSGD(0.1), torch.zeros(2), torch.tensor([5.0, 6.0]))
    assert algorithm.finish(torch.ones(2), 0).tolist() == [5, 6]


@pytest.fixture
def scaffold(tiny):
    return tiny(client={"algorithm": "scaffold", "optimizer": "sgd", "lr": 0.1}, model={"name": "convnet"}, rounds=3)


def test_controls_survive_and_the_shared_one_is_their_mean(scaffold):
    """With every control starting at 0, c = (1/n) Σ c_i over all clients after every round (absent ones are 0)."""
    simulation = Simulation(scaffold, executor="serial")
    seen: dict[int, torch.Tensor] = {}
    for record in simulation:
        state = simulation.state
        assert set(state.own) == set(seen) | set(record.ids)
        for client, control in seen.items():
            assert torch.equal(state.own[client], control) == (client not in record.ids)
        torch.testing.assert_close(state.shared, sum(state.own.values()) / 8, rtol=1e-4, atol=1e-6)
        seen = {client: control.clone() for client, control in state.own.items()}
    assert float(simulation.state.shared.norm()) > 0


def test_controls_are_kept_in_the_order_of_the_spec(scaffold):
    """Option II recomputed from the rows: with c = c_i = 0 in round 1, c_i = (w^t − w_i)/(K lr), kernels included."""
    simulation = Simulation(scaffold, executor="serial")
    start = simulation.state.vectors[0].clone()
    rows = {}

    class Spy(type(simulation.rules[0])):
        def aggregate(self, updates, server):
            for i, client in enumerate(updates.ids):
                rows[client] = updates.matrix[i].clone(), int(updates.num_steps[i])
            return super().aggregate(updates, server)

    simulation.rules = [Spy()]
    record = next(iter(simulation))
    size = simulation.specs[0].num_parameters
    for client in record.ids:
        row, steps = rows[client]
        expected = (start[:size] - row[:size]) / (steps * 0.1)
        torch.testing.assert_close(simulation.state.own[client], expected, rtol=1e-3, atol=1e-4)


def test_a_diverged_client_does_not_spoil_the_shared_control(tiny):
    """A learning rate of 1e30 makes rows and controls NaN; screening drops the rows, the controls stay as they were."""
    wild = tiny(client={"algorithm": "scaffold", "optimizer": "sgd", "lr": 1e30}, rounds=2)
    simulation = Simulation(wild, executor="serial")
    for record in simulation:
        assert len(record.dropped) > 0
        assert torch.isfinite(simulation.state.shared).all()
        assert torch.isfinite(simulation.state.vectors[0]).all()
