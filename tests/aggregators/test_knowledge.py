"""Whether what a client changed is what the labels ask for."""

import pytest
import torch

from smartfl.aggregators.knowledge import knowledge

BEFORE, LABELS, ONES = torch.zeros(2, 2), torch.tensor([0, 1]), torch.ones(2)


def test_by_hand():
    """Two samples of classes 0 and 1.  The first client raised the right one of each, the second the wrong one, the
    third says class 0 about both, which follows nothing, the fourth what the first and the third say together."""
    way, bias = torch.tensor([[1.0, -1], [-1, 1]]), torch.tensor([[1.0, -1], [1, -1]])
    found = knowledge(torch.stack([3 * way, -way, bias, way + 5 * bias]), BEFORE, LABELS, ONES)
    assert found.tolist() == pytest.approx([1, -1, 0, 1])


def test_what_all_knew_before_is_nobodys_knowledge():
    """Logits that are those of the start: nothing was changed."""
    before = torch.tensor([[2.0, -1], [0, 3]])
    assert knowledge(before[None].repeat(3, 1, 1), before, LABELS, ONES).tolist() == [0, 0, 0]


def test_a_class_counts_by_how_far_it_was_moved_by_hand():
    """Three samples of three classes, and a client that changed the first one's logits by (1, 0, 0); without their mean
    by (2, −1, −1)/3.  Class 0 follows the labels, r = 1.  Of class 1 (−1, 0, 0)/3 is correlated with (0, 1, 0) by
    (1/9) / (√6/9 · √6/3) = ½, as of class 2.  The means of z² are as 4 : 1 : 1, so k = (4 + ½ + ½)/6 = 5/6."""
    opinions = torch.zeros(1, 3, 3)
    opinions[0, 0, 0] = 1
    found = knowledge(opinions, torch.zeros(3, 3), torch.arange(3), torch.ones(3))
    assert found.item() == pytest.approx(5 / 6)


def test_unlearning_is_no_lie():
    """A client of class 0 says it about everything, more about the sample that is of class 0, and forgets the others:
    what it says of classes 1 and 2 is against the labels, but it has hardly moved them.  One who saw samples of class 1
    called 0 says 0 more about those."""
    forgets = torch.diag(torch.tensor([0.0, -1, -1]))
    honest, liar = (torch.tensor([8.0, -4, -4]) + forgets for _ in range(2))
    honest[0, 0] += 2
    liar[1, 0] += 2
    found = knowledge(torch.stack([honest, liar]), torch.zeros(3, 3), torch.arange(3), torch.ones(3))
    assert found[0] > 0.4
    assert found[1] < -0.3


def test_a_class_without_samples_is_not_asked():
    """Three classes, no sample of class 2: what a client says of it, and how loud, changes nothing."""
    opinions = torch.zeros(2, 2, 3)
    opinions[:, 0, 0] = 1
    opinions[1] += torch.tensor([0.5, 0.5, -1.0])  # by which the others keep their mean
    quiet, loud = knowledge(opinions, torch.zeros(2, 3), LABELS, ONES).tolist()
    assert quiet == 1
    assert loud == pytest.approx(1)


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
