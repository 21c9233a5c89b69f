"""The handwritten digits that come with scikit-learn: no download."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from smartfl.data.dataset import Dataset, Dense
from smartfl.data.split import stratified_split


def digits() -> Dataset:
    """1,797 digits as (1, 8, 8) float32 in [0, 1], ten classes, a fixed stratified 80/20 split.

    Alpaydin & Kaynak 1998 (UCI). The pixels are counts 0 … 16, hence the division by 16.
    """
    pixels, targets = load_digits(return_X_y=True)
    values = torch.from_numpy((pixels / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(targets.astype(np.int64))
    train, test = (torch.from_numpy(index) for index in stratified_split(labels.numpy(), "digits"))
    return Dataset("digits", Dense(values[train]), labels[train], Dense(values[test]), labels[test], 10)
