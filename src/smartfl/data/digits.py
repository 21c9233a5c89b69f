"""The handwritten digits that come with scikit-learn: no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smartfl.data.dataset import Dataset, Dense
from smartfl.data.split import stratified_split


def digits() -> Dataset:
    """1,797 digits as (1, 8, 8) float32 in [0, 1], ten classes, a fixed stratified 80/20 split.

    Alpaydin & Kaynak 1998 (UCI). The pixels are counts 0 … 16, hence the division by 16.
    """
    table = _table()
    values = torch.from_numpy((table[:, :-1] / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    train, test = (torch.from_numpy(index) for index in stratified_split(labels.numpy(), "digits"))
    return Dataset("digits", Dense(values[train]), labels[train], Dense(values[test]), labels[test], 10)


def _table() -> np.ndarray[Any, np.dtype[np.float64]]:
    """(1797, 65) pixels and label.

    Read from scikit-learn's own file, as importing scikit-learn takes longer than a round of the demo.
    """
    spec = find_spec("sklearn")
    for root in (spec.submodule_search_locations or []) if spec else []:
        file = Path(root) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # a scikit-learn that keeps the file elsewhere

    pixels, labels = load_digits(return_X_y=True)
    return np.column_stack([pixels, labels])
