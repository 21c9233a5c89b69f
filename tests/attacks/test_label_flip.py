from __future__ import annotations

import torch

from smartfl.attacks.label_flip import LabelFlip
from smartfl.data.dataset import Dense


def flip(attack: LabelFlip, labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    inputs = Dense(torch.zeros(len(labels), 2))
    same, flipped = attack.poison_data(inputs, labels, num_classes, torch.Generator())
    assert same is inputs
    return flipped


def test_next_class_c_times_is_the_identity_and_no_label_is_unchanged() -> None:
    labels = torch.tensor([0, 1, 2, 3, 4, 4, 0])
    once = flip(LabelFlip(), labels, 5)
    assert once.tolist() == [1, 2, 3, 4, 0, 0, 1]
    assert (once != labels).all()
    again = labels
    for _ in range(5):
        again = flip(LabelFlip(), again, 5)
    assert torch.equal(again, labels)


def test_reverse_twice_is_the_identity_and_keeps_only_the_middle_class() -> None:
    """C = 5: y → 4 − y, so 2 stays; C = 4: y → 3 − y, nothing stays."""
    labels = torch.arange(5)
    assert flip(LabelFlip("reverse"), labels, 5).tolist() == [4, 3, 2, 1, 0]
    assert torch.equal(flip(LabelFlip("reverse"), flip(LabelFlip("reverse"), labels, 5), 5), labels)
    assert (flip(LabelFlip("reverse"), torch.arange(4), 4) != torch.arange(4)).all()
