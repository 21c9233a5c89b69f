"""The embedded digits."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from smartfl.data.digits import digits
from smartfl.data.split import stratified_split


def test_every_digit_is_in_one_part_and_scaled_by_sixteen() -> None:
    """1,797 samples; the sum of all pixels divided by 16 is kept by a split that neither loses nor repeats."""
    data = digits()
    pixels, targets = load_digits(return_X_y=True)
    assert data.shape == (1, 8, 8)
    assert len(data.train) + len(data.test) == 1797
    both = torch.cat([data.train[torch.arange(len(data.train))], data.test[torch.arange(len(data.test))]])
    order = np.lexsort(both.reshape(1797, 64).numpy().T)
    expected = (pixels / 16).astype(np.float32)
    np.testing.assert_array_equal(both.reshape(1797, 64).numpy()[order], expected[np.lexsort(expected.T)])
    labels = torch.cat([data.train_labels, data.test_labels])
    assert torch.bincount(labels).tolist() == np.bincount(targets).tolist()


def test_a_fifth_of_every_class_is_for_testing() -> None:
    data = digits()
    test, train = torch.bincount(data.test_labels), torch.bincount(data.train_labels)
    assert test.tolist() == [round(0.2 * int(n)) for n in test + train]


def test_the_split_does_not_depend_on_global_generators() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the point is that the global generator has no say
    first = digits()
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    second = digits()
    assert torch.equal(first.test_labels, second.test_labels)
    index = torch.arange(len(first.test))
    assert torch.equal(first.test[index], second.test[index])


def test_stratified_split_by_hand() -> None:
    """Class 0 has 10 samples (2 to test), class 1 has 5 (1 to test), class 2 has 2 (round(0.4) = 0)."""
    labels = np.repeat([0, 1, 2], [10, 5, 2])
    train, test = stratified_split(labels, "x")
    assert np.bincount(labels[test], minlength=3).tolist() == [2, 1, 0]
    assert sorted([*train, *test]) == list(range(17))
