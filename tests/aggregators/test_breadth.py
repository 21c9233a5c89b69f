"""How many classes a client has to do with."""

import pytest
import torch

from smartfl.aggregators.breadth import breadth

LABELS, ONES = torch.arange(4), torch.ones(4)


def test_by_hand():
    """Four samples of four classes.  The first client raised one logit of one sample, z² = (9, 1, 1, 1)/16 there, so
    that b = 12² / (4 · 84) = 3/7; the second raised one for every sample, each class once, which is all of them alike;
    the third raised two for one and lowered the others by as much: z² = (1, 1, 1, 1)."""
    one, each, two = torch.zeros(3, 4, 4).unbind()
    one[0, 0] = 1
    each.fill_diagonal_(1)
    two[0] = torch.tensor([1.0, 1, -1, -1])
    opinions = torch.stack([one, each, two])
    assert breadth(opinions, torch.zeros(4, 4), LABELS, ONES).tolist() == pytest.approx([3 / 7, 1, 1])


def test_it_is_of_the_change_whatever_its_size():
    """Two clients of whom one goes a hundred times as far; both say more of all classes, which is no change."""
    before = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    change = torch.zeros(4, 4, dtype=torch.float64)
    change[0, 0] = 1
    opinions = before + torch.stack([change, 100 * change]) + torch.tensor([3.0, 5, 7, 9])[:, None]
    assert breadth(opinions, before, LABELS, ONES).tolist() == pytest.approx([3 / 7, 3 / 7])


def test_a_class_without_samples_does_not_count():
    """Three samples, of classes 0, 1 and 3 of four: a client that moved each of the three alike has all there are,
    though it moved class 2 most."""
    opinions = torch.tensor([1.0, 1, -5, 1]).expand(1, 3, 4)
    found = breadth(opinions, torch.zeros(3, 4), torch.tensor([0, 1, 3]), torch.ones(3))
    assert found.item() == pytest.approx(1)


def test_a_sample_of_a_rare_class_counts_more():
    """One sample raises class 0, three raise class 1: with weights 3, 1, 1, 1 both classes are moved alike, and the
    others by as little as before."""
    opinions = torch.zeros(1, 4, 4)
    opinions[0, 0, 0] = opinions[0, 1, 1] = opinions[0, 2, 1] = opinions[0, 3, 1] = 1
    equal, balanced = (
        breadth(opinions, torch.zeros(4, 4), LABELS, weights).item() for weights in (ONES, torch.tensor([3.0, 1, 1, 1]))
    )
    assert balanced == pytest.approx((10 + 10 + 2 + 2) ** 2 / (4 * (10**2 + 10**2 + 2**2 + 2**2)))
    assert equal < balanced


def test_who_overflows_or_stays_has_no_classes():
    opinions = torch.stack([torch.full((4, 4), torch.inf), torch.zeros(4, 4)])
    assert breadth(opinions, torch.zeros(4, 4), LABELS, ONES).tolist() == [0, 0]
