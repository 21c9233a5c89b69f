"""Whether what a client changed is what the labels ask for."""

import pytest
import torch

from smartfl.aggregators.knowledge import knowledge

BEFORE, LABELS, ONES = torch.zeros(2, 2), torch.tensor([0, 1]), torch.ones(2)


def test_by_hand():
    """Two samples of classes 0 and 1, a start that says nothing: r = ((½, −½), (−½, ½)).  The first client has changed
    the logits that way, the second the opposite way, the third says class 0 about both (its bias, of which nothing
    is left) and the fourth the first's and the third's together."""
    way, bias = torch.tensor([[1.0, -1], [-1, 1]]), torch.tensor([[1.0, -1], [1, -1]])
    found = knowledge(torch.stack([3 * way, -way, bias, way + 5 * bias]), BEFORE, LABELS, ONES)
    assert found.tolist() == pytest.approx([1, -1, 0, 1])


def test_what_all_knew_before_is_nobodys_knowledge():
    """Logits that are those of the start: nothing was changed."""
    before = torch.tensor([[2.0, -1], [0, 3]])
    assert knowledge(before[None].repeat(3, 1, 1), before, LABELS, ONES).tolist() == [0, 0, 0]


def test_half_of_the_way_by_hand():
    """Three samples of three classes, r = onehot − ⅓, which has no bias; Σ r² = 2.  A client that changed the first
    sample's logits by (1, 0, 0) has, without bias, d = (4, −2, −2; −2, 1, 1; −2, 1, 1)/9, Σ d² = 36/81 = 4/9.
    Σ r d = (2·4 + 4·2 + 2·2·1 − 2·1)/27 = 18/27, so the cosine is (2/3) / √(8/9) = 0.7071."""
    opinions = torch.zeros(1, 3, 3)
    opinions[0, 0, 0] = 1
    found = knowledge(opinions, torch.zeros(3, 3), torch.arange(3), torch.ones(3))
    assert found.item() == pytest.approx(0.70711, abs=1e-5)


def test_what_overflows_is_not_known():
    opinions = torch.stack([torch.full((2, 2), torch.inf), torch.eye(2)])
    assert knowledge(opinions, BEFORE, LABELS, ONES).tolist() == [0, pytest.approx(1)]


def test_a_sample_of_a_rare_class_asks_for_more():
    """One sample of class 0, three of class 1, one of class 2: with weights 3, 1, 1, 1, 3 a client that is right about
    the first alone knows more than with equal ones."""
    labels, opinions = torch.tensor([0, 1, 1, 1, 2]), torch.zeros(1, 5, 3)
    opinions[0, 0, 0] = 1
    weights = torch.ones(5), torch.tensor([3.0, 1, 1, 1, 3])
    equal, balanced = (knowledge(opinions, torch.zeros(5, 3), labels, w).item() for w in weights)
    assert 0 < equal < balanced
