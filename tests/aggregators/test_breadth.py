"""How many classes a client has learned."""

import pytest
import torch

from smartfl.aggregators.breadth import breadth

LABELS, BEFORE = torch.arange(4), torch.zeros(4, 4)


def test_by_hand():
    """Four samples of four classes.  The first client says class 0 of all: z = (3, −1, −1, −1)/4, u = (3, 0, 0, 0)/4,
    E = 1.  The second says of each sample its class, u = (3, 3, 3, 3)/4, E = 4.  The third says class 0 twice as loud
    as class 1 of their own samples, u = (6, 3, 0, 0)/4, E = 9²/45 = 9/5, b = (9/5 − 1)/3.  The fourth says what is
    wrong."""
    one = torch.tensor([1.0, 0, 0, 0]).expand(4, 4)
    opinions = torch.stack([one, torch.eye(4), torch.diag(torch.tensor([2.0, 1, 0, 0])), -torch.eye(4)])
    assert breadth(opinions, BEFORE, LABELS).tolist() == pytest.approx([0, 1, 4 / 15, 0])


def test_it_is_of_the_change_whatever_its_size():
    """Two clients of whom one goes a hundred times as far; both say more of all classes, which is no change."""
    before = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    change = torch.diag(torch.tensor([2.0, 1, 0, 0], dtype=torch.float64))
    opinions = before + torch.stack([change, 100 * change]) + torch.tensor([3.0, 5, 7, 9])[:, None]
    assert breadth(opinions, before, LABELS).tolist() == pytest.approx([4 / 15, 4 / 15])


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_client_of_one_class_has_none_of_the_others_however_few_there_are(classes: int):
    opinions = torch.eye(classes)[:1].expand(1, classes, classes)
    assert breadth(opinions, torch.zeros(classes, classes), torch.arange(classes)).item() == 0


def test_a_class_without_samples_does_not_count():
    """Two samples, of classes 0 and 2 of three: who says of each its class has all there are."""
    opinions = torch.eye(3)[None, [0, 2]]
    assert breadth(opinions, torch.zeros(2, 3), torch.tensor([0, 2])).item() == pytest.approx(1)


def test_samples_of_one_class_cannot_tell():
    assert breadth(torch.eye(3)[None, :1], torch.zeros(1, 3), torch.tensor([0])).item() == 0


def test_a_class_of_many_samples_counts_once():
    """Three samples of class 0, of which it says 0 by 1, 2 and 3, and one of class 1, of which it says 1 by 2."""
    opinions = torch.zeros(1, 4, 3)
    opinions[0, :3, 0] = torch.tensor([1.0, 2, 3])
    opinions[0, 3, 1] = 2
    assert breadth(opinions, torch.zeros(4, 3), torch.tensor([0, 0, 0, 1])).item() == pytest.approx(1)


def test_who_overflows_or_stays_has_no_classes():
    """The second overflows in one number, of a class that the sample is not of."""
    once = torch.eye(4)
    once[0, 3] = torch.inf
    opinions = torch.stack([torch.full((4, 4), torch.inf), once, BEFORE])
    assert breadth(opinions, BEFORE, LABELS).tolist() == [0, 0, 0]
