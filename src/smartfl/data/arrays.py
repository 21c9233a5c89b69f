"""A user's own arrays from an .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smartfl.data.dataset import Dataset, Dense
from smartfl.data.split import stratified_split
from smartfl.errors import UserError

Array = np.ndarray[Any, Any]

CHANNELS = (1, 3, 4)


def arrays(
    path: str,
    num_classes: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Dataset:
    """The dataset in ``np.savez(path, x_train=…, y_train=…, x_test=…, y_test=…)``.

    x   (N, F) features, (N, H, W) grey images, or (N, C, H, W) or (N, H, W, C) images: the axis with 1, 3 or 4
        entries is the channels, the first one where both could be. uint8 counts as pixels and is scaled to [0, 1];
        everything else becomes float32 and passes as it is.
    y   (N,) whole numbers from 0.

    Without x_test and y_test a fixed fifth of every class is the test part. ``mean`` and ``std`` have one entry per
    channel (per feature for (N, F)), or one for all, and refer to scaled pixels. Pickled arrays are refused.
    """
    found = _read(path)
    x_train, y_train = _samples(path, found, "train")
    if "x_test" in found:
        x_test, y_test = _samples(path, found, "test")
        if x_test.shape[1:] != x_train.shape[1:]:
            raise UserError(f"path = '{path}': x_train and x_test hold samples of different shapes")
    else:
        train, test = stratified_split(y_train, "path")
        x_test, y_test, x_train, y_train = x_train[test], y_train[test], x_train[train], y_train[train]
    classes = 1 + int(max(y_train.max(), y_test.max()))
    if num_classes is not None and num_classes < classes:
        raise UserError(f"num_classes = {num_classes} is too small: '{path}' has labels up to {classes - 1}")
    _check_scaling(mean, std, x_train.shape[1])
    return Dataset(
        Path(path).stem,
        Dense(_tensor(x_train), mean, std),
        torch.from_numpy(y_train),
        Dense(_tensor(x_test), mean, std),
        torch.from_numpy(y_test),
        num_classes or classes,
    )


def _read(path: str) -> dict[str, Array]:
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"path = '{path}' is not a file; an .npz file with x_train and y_train is accepted")
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UserError(f"path = '{path}' holds a single array; an .npz file with x_train and y_train is accepted")
        with loaded as archive:
            found = {key: archive[key] for key in ("x_train", "y_train", "x_test", "y_test") if key in archive}
            others = sorted(set(archive.files) - set(found))
    except UserError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"path = '{path}' cannot be read as an .npz file without pickles: {error}") from error
    missing = {"x_train", "y_train"} - set(found)
    if ("x_test" in found) != ("y_test" in found):
        missing |= {"x_test", "y_test"} - set(found)
    if missing:
        beside = f" (it has {', '.join(others)})" if others else ""
        raise UserError(f"path = '{path}' lacks {' and '.join(sorted(missing))}{beside}")
    return found


def _samples(path: str, found: dict[str, Array], part: str) -> tuple[Array, Array]:
    """Samples with channels first, and int64 labels."""
    x, y = found[f"x_{part}"], found[f"y_{part}"]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or (len(y) and int(y.min()) < 0):
        raise UserError(f"path = '{path}': y_{part} must be (N,) whole numbers from 0, got {y.dtype} {y.shape}")
    if x.ndim not in (2, 3, 4) or not (np.issubdtype(x.dtype, np.number) or x.dtype == bool) or np.iscomplexobj(x):
        raise UserError(f"path = '{path}': x_{part} must be real numbers (N, F) or images, got {x.dtype} {x.shape}")
    if not len(x):
        raise UserError(f"path = '{path}': x_{part} has no samples; at least one is needed")
    if len(x) != len(y):
        raise UserError(f"path = '{path}': x_{part} has {len(x)} samples, y_{part} {len(y)}; equal counts are accepted")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS:
        x = x.transpose(0, 3, 1, 2)
    if not (np.abs(x) <= np.finfo(np.float32).max).all():
        raise UserError(f"path = '{path}': x_{part} holds values that are not finite, or too large for float32")
    return x, y.astype(np.int64)


def _tensor(x: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32)))


def _check_scaling(mean: tuple[float, ...] | None, std: tuple[float, ...] | None, channels: int) -> None:
    if (mean is None) != (std is None):
        raise UserError("mean and std are accepted together only")
    for name, values in (("mean", mean), ("std", std)):
        if values is not None and len(values) not in (1, channels):
            raise UserError(f"{name} has {len(values)} entries; accepted: 1 or {channels}, one per channel")
    if std is not None and not min(std) > 0:
        raise UserError("std must be above 0 in every entry")
