"""SmartFL-U: pseudo-labels from the clients, weights on the simplex."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from smartfl.aggregators.fedavg import FedAvg
from smartfl.aggregators.smartfl_unlabelled import SmartFLUnlabelled
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.types import Proxy, Server, Updates


def world(n: int = 5, seed: int = 0) -> tuple[Updates, Server]:
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(3, 4)
    spec = FlatSpec.of(model)
    rows = torch.randn(n, spec.size, generator=generator)
    proxy = Proxy(torch.randn(40, 3, generator=generator), None, 4)
    counts = torch.arange(1, n + 1)
    return Updates.of(rows, counts, spec=spec), Server(model=model, proxy=proxy, generator=generator)


def test_two_clients_of_opposite_opinion_by_hand() -> None:
    """Logits (2,0,0) and (0,2,0) on one sample: z̄ = (1,1,0), q = (0.422319, 0.422319, 0.155362) (ALGORITHMS.md 2.1).

    The student (2a, 2(1−a), 0) equals the teacher at a = 1/2: starting from counts 3 and 1 the weights go there.
    """
    model = nn.Linear(1, 3, bias=False)
    rows = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    updates = Updates.of(rows, [3, 1], spec=FlatSpec.of(model))
    server = Server(model=model, proxy=Proxy(torch.ones(1, 1), None, 3))
    result = SmartFLUnlabelled("centred", lr=1e-2, server_epochs=300)(updates, server)
    assert result.coefficients is not None
    assert result.coefficients.tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert result.info["kl"] == pytest.approx(0.0, abs=1e-3)


def test_kl_at_the_start_by_hand() -> None:
    """Two equal clients are the student (1,0,0) whatever p is; for the teacher q = softmax(1,1,0) KL = 0.111769."""
    model = nn.Linear(1, 3, bias=False)
    rows = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    updates = Updates.of(rows, spec=FlatSpec.of(model))
    server = Server(model=model, proxy=Proxy(torch.ones(1, 1), None, 3), teacher=torch.tensor([[1.0, 1.0, 0.0]]))
    result = SmartFLUnlabelled("centred")(updates, server)
    assert result.info["kl"] == pytest.approx(0.111769, abs=1e-6)


def test_no_epochs_is_fedavg() -> None:
    updates, server = world()
    assert torch.equal(SmartFLUnlabelled("centred", server_epochs=0)(updates, server).vector, FedAvg()(updates).vector)


def test_stays_within_its_reach_and_on_the_simplex() -> None:
    """80 Adam steps of 5e-4 move a weight by 0.04 at most, projection included."""
    updates, server = world(n=8)
    p = SmartFLUnlabelled("centred")(updates, server).coefficients
    assert p is not None
    assert float(p.min()) >= 0
    assert math.isclose(float(p.sum()), 1, abs_tol=1e-9)
    assert float((p - updates.weights).abs().max()) <= 0.05
    assert float((p - updates.weights).abs().max()) > 0


def test_lowers_the_distance_to_the_teacher() -> None:
    updates, server = world(n=8)
    few = SmartFLUnlabelled("centred", server_epochs=1, lr=1e-3)(updates, server).info["kl"]
    many = SmartFLUnlabelled("centred", server_epochs=200, lr=1e-2)(updates, server).info["kl"]
    assert many < few


def test_a_nan_client_changes_nothing() -> None:
    updates, server = world()
    rows = torch.cat([updates.matrix, torch.full((1, updates.spec.size), torch.nan)])
    more = Updates.of(rows, [*updates.num_examples.tolist(), 9], spec=updates.spec)
    alone = SmartFLUnlabelled("centred")(updates, replace(server, generator=torch.Generator().manual_seed(1)))
    beside = SmartFLUnlabelled("centred")(more, replace(server, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(alone.vector, beside.vector)
    assert beside.coefficients is not None
    assert beside.coefficients[-1] == 0


def test_an_overflowing_client_gets_no_weight() -> None:
    updates, server = world()
    matrix = updates.matrix.clone()
    matrix[2] = 1e38
    result = SmartFLUnlabelled("centred")(updates.with_matrix(matrix), server)
    assert result.coefficients is not None
    assert result.coefficients[2] == 0
    assert torch.isfinite(result.vector).all()
    assert result.events


def test_statistics_that_overflow_are_not_taken(world) -> None:  # type: ignore[no-untyped-def]
    """1e20 before a BatchNorm: its variance on the samples is infinite; the clients' mixed ones are shipped."""
    w = world(batchnorm=True)
    rows = w.updates.matrix.clone()
    rows[0, :12] *= 1e20
    updates = Updates.of(rows, origin=w.updates.origin, spec=w.updates.spec)
    result = SmartFLUnlabelled("centred", server_epochs=2, batchnorm="reestimate")(updates, w.unlabelled())
    assert result.events[-1] == "statistics on the proxy data are not finite: not taken"
    assert torch.isfinite(result.vector).all()


def test_needs_inputs() -> None:
    updates, _ = world()
    with pytest.raises(UserError, match="proxy"):
        SmartFLUnlabelled("centred")(updates)


def test_calibrated_drops_a_minority_that_says_the_opposite() -> None:
    """Five honest clients and two that send their models negated: without a label, the two get next to nothing."""
    generator = torch.Generator().manual_seed(3)
    model = nn.Linear(6, 3, bias=False)
    truth = torch.randn(3 * 6, generator=generator)
    honest = truth + 0.3 * torch.randn(5, 18, generator=generator)
    updates = Updates.of(torch.cat([honest, -honest[:2]]), spec=FlatSpec.of(model))
    proxy = Proxy(torch.randn(64, 6, generator=generator), None, 3)
    result = SmartFLUnlabelled()(updates, Server(model=model, proxy=proxy, generator=generator))
    assert result.coefficients is not None
    assert float(result.coefficients[5:].sum()) < 0.01
    assert result.info["pseudo_classes"] == 3


def test_calibrated_ignores_labels_it_is_not_given() -> None:
    """The same pseudo-labels and weights whatever labels lie beside the inputs."""
    updates, server = world()
    assert server.proxy is not None
    results = []
    for labels in (torch.zeros(40, dtype=torch.int64), torch.arange(40) % 4):
        one = replace(server, proxy=replace(server.proxy, labels=labels), generator=torch.Generator().manual_seed(5))
        results.append(SmartFLUnlabelled()(updates, one).vector)
    assert torch.equal(*results)


def test_a_global_model_that_overflows_leaves_every_client_its_voice() -> None:
    """What clients changed is unknown then: a NaN among the voices would make the median the smallest opinion."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(6, 3, bias=False)
    truth = torch.randn(18, generator=generator)
    rows = torch.cat([truth + 0.3 * torch.randn(5, 18, generator=generator), -truth.expand(2, 18)])
    updates = Updates.of(rows, origin=torch.full((18,), 3e38), spec=FlatSpec.of(model))
    proxy = Proxy(torch.randn(64, 6, generator=generator), None, 3)
    # No update is longer than twice the median one: measured from such an origin, all are equally long.
    result = SmartFLUnlabelled()(updates, Server(model=model, proxy=proxy, generator=generator))
    assert result.coefficients is not None
    assert float(result.coefficients[5:].sum()) < 0.01
