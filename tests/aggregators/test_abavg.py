from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.aggregators.abavg import ABAvg, abavg_weights, accuracies
from smartfl.errors import UserError
from smartfl.types import Updates


def test_worked_example_weights_are_the_accuracies_when_they_sum_to_one():
    assert abavg_weights(torch.tensor([0.5, 0.25, 0.25])).tolist() == [0.5, 0.25, 0.25]


def test_counts_multiply_on_request():
    """0.5·1 : 0.25·4 : 0.25·2 = 1 : 2 : 1."""
    assert abavg_weights(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([1.0, 4, 2])).tolist() == [0.25, 0.5, 0.25]


def test_accuracy_counts_hits():
    logits = torch.tensor([[[1.0, 0], [0, 1.0], [1.0, 0], [1.0, 0]]])
    assert accuracies(logits, torch.tensor([0, 0, 0, 1])).tolist() == [0.5]


@pytest.mark.parametrize("times_samples", [False, True])
def test_agrees_with_counting_by_hand(world, times_samples):
    w = world(batchnorm=True, clients=5, spread=1.0)
    score = []
    for row, count in zip(w.updates.matrix, w.updates.num_examples.tolist(), strict=True):
        w.model.eval()
        hits = (w.updates.spec.functional_call(w.model, row, w.proxy.inputs).argmax(1) == w.proxy.labels).float().mean()
        score.append(float(hits) * (count if times_samples else 1))
    expected = np.array(score) / sum(score)
    assert expected.std() > 0.01
    result = ABAvg(times_samples)(w.updates, w.server())
    np.testing.assert_allclose(result.coefficients.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(result.vector.numpy(), expected @ w.updates.matrix.numpy(), rtol=1e-4, atol=1e-6)


def always(w, label):
    """A client that answers ``label`` whatever it sees."""
    row = torch.zeros_like(w.updates.origin)
    row[9 + label] = 1
    return row


def test_nobody_right_falls_back_to_fedavg(world):
    w = world()
    server = w.server(proxy=type(w.proxy)(w.proxy.inputs, torch.full_like(w.proxy.labels, 2), 3))
    updates = Updates.of(torch.stack([always(w, 0), always(w, 1)]), [1, 3], w.updates.origin, spec=w.updates.spec)
    result = ABAvg()(updates, server)
    assert result.coefficients.tolist() == [0.25, 0.75]
    assert "FedAvg" in result.events[0]


def test_only_the_client_that_is_right_counts(world):
    w = world()
    server = w.server(proxy=type(w.proxy)(w.proxy.inputs, torch.full_like(w.proxy.labels, 2), 3))
    updates = Updates.of(torch.stack([always(w, 0), always(w, 2)]), [9, 1], w.updates.origin, spec=w.updates.spec)
    assert torch.equal(ABAvg()(updates, server).vector, always(w, 2))


def test_an_overflowing_client_gets_no_weight_not_even_in_the_fallback(world):
    w = world()
    server = w.server(proxy=type(w.proxy)(w.proxy.inputs, torch.full_like(w.proxy.labels, 2), 3))
    rows = torch.stack([always(w, 0), torch.full_like(w.updates.origin, 3e38), always(w, 1)])
    result = ABAvg()(Updates.of(rows, [1, 9, 3], w.updates.origin, spec=w.updates.spec), server)
    assert result.coefficients.tolist() == [0.25, 0, 0.75]
    assert len(result.events) == 2
    hopeless = ABAvg()(w.updates.with_matrix(torch.full_like(w.updates.matrix, 3e38)), w.server())
    assert torch.equal(hopeless.vector, w.updates.origin)


def test_a_nan_row_is_as_good_as_absent(world):
    w = world()
    plus = w.with_row(9, torch.full_like(w.updates.origin, torch.inf))
    result = ABAvg()(plus, w.server())
    assert torch.equal(result.vector, ABAvg()(w.updates, w.server()).vector)
    assert result.coefficients[-1] == 0


def test_missing_labels_are_the_users_mistake(world):
    w = world()
    with pytest.raises(UserError, match="ABAvg needs labelled"):
        ABAvg()(w.updates, w.unlabelled())
