"""A user's own data through Hugging Face ``datasets`` (optional: pip install 'smartfl[hf]')."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smartfl.data.bounds import class_count
from smartfl.data.dataset import Dataset, Dense
from smartfl.errors import UserError


def huggingface(
    path: str,
    image: str = "image",
    label: str = "label",
    name: str | None = None,
    train: str = "train",
    test: str = "test",
) -> Dataset:
    """Two splits of a dataset from the hub, a local script or folder, or one saved with ``save_to_disk``.

    path         a directory, or a name on the hub
    image        the column of inputs: pictures of one size, or numbers of one shape
    label        the column of classes: class labels, whole numbers or strings
    name         the dataset's configuration, where it has several
    train, test  the names of the splits

    Pictures become uint8 (N, C, H, W) scaled to [0, 1] per batch; numbers become float32 as they are.
    """
    try:
        import datasets
    except ImportError as error:
        raise UserError("dataset 'huggingface' needs the package datasets: pip install 'smartfl[hf]'") from error
    try:
        if (Path(path) / "dataset_dict.json").is_file():
            splits = datasets.load_from_disk(path)
        else:
            splits = datasets.load_dataset(path, name)
    except (OSError, ValueError, RuntimeError, ConnectionError) as error:
        raise UserError(f"path = {path!r} cannot be loaded by Hugging Face datasets: {error}") from error
    for setting, split in (("train", train), ("test", test)):
        if split not in splits:
            raise UserError(f"{setting} = {split!r}: '{path}' has the splits {', '.join(splits)}")
    for setting, column in (("image", image), ("label", label)):
        if column not in splits[train].column_names:
            raise UserError(f"{setting} = {column!r}: '{path}' has the columns {', '.join(splits[train].column_names)}")
    classes = _classes(splits[train], label)
    return Dataset(
        name=path,
        train=Dense(_inputs(splits[train], image)),
        train_labels=_labels(splits[train], label, classes),
        test=Dense(_inputs(splits[test], image)),
        test_labels=_labels(splits[test], label, classes),
        num_classes=len(classes),
    )


def _classes(split: Any, label: str) -> list[Any]:
    """The classes in order: as the dataset declares them, else 0 … the highest, else the strings sorted."""
    declared = getattr(split.features[label], "names", None)
    if declared:
        return list(range(len(declared)))
    values = set(split[label])
    if all(isinstance(value, int) and value >= 0 for value in values):
        return list(range(class_count(np.array(sorted(values)), None, f"label = {label!r}")))
    if all(isinstance(value, str) for value in values):
        return sorted(values)
    raise UserError(f"label = {label!r}: whole numbers from 0 or strings are accepted")


def _labels(split: Any, label: str, classes: list[Any]) -> Tensor:
    place = {value: i for i, value in enumerate(classes)}
    try:
        return torch.tensor([place[value] for value in split[label]], dtype=torch.int64)
    except KeyError as error:
        raise UserError(f"label = {label!r}: the value {error} does not occur in the training split") from error


def _inputs(split: Any, column: str) -> Tensor:
    samples = [np.asarray(sample) for sample in split[column]]
    shapes = {sample.shape for sample in samples}
    if len(shapes) != 1:
        raise UserError(f"image = {column!r}: samples must have one shape, found {sorted(shapes)[:3]}")
    values = np.stack(samples)
    if values.dtype != np.uint8:
        return torch.from_numpy(values.astype(np.float32))
    # Grey pictures come without a channel, coloured ones with it last.
    values = values[:, None] if values.ndim == 3 else np.moveaxis(values, -1, 1)
    return torch.from_numpy(np.ascontiguousarray(values))
