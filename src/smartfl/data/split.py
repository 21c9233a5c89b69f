"""A fixed train/test split for data that come without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from smartfl.errors import UserError
from smartfl.rng import numpy_stream

Index = np.ndarray[Any, np.dtype[np.int64]]


def stratified_split(labels: Index, name: str, test_share: float = 0.2) -> tuple[Index, Index]:
    """Sorted train and test indices with ``test_share`` of every class (rounded) in the test part.

    Depends on ``name`` and the labels only, never on an experiment's seed: accuracies of different seeds are
    measured on the same samples.
    """
    rng = numpy_stream(0, "split", name)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        test[rng.permutation(members)[: round(test_share * len(members))]] = True
    if not test.any():
        raise UserError(f"{name}: {len(labels)} samples are too few to set some aside for testing; give a test part")
    return np.flatnonzero(~test), np.flatnonzero(test)
