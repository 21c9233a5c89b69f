"""A user's own arrays from an .npz file."""

from __future__ import annotations

import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smartfl.data.bounds import check_bytes, class_count
from smartfl.data.dataset import Dataset, Dense
from smartfl.data.split import stratified_split
from smartfl.errors import UserError

Array = np.ndarray[Any, Any]

CHANNELS = (1, 3, 4)
KEYS = ("x_train", "y_train", "x_test", "y_test")


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
    y   (N,) whole numbers from 0; every class must occur, unless ``num_classes`` says how many there are.

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
    classes = class_count(np.concatenate([y_train, y_test]), num_classes, f"path = '{path}'")
    _check_scaling(mean, std, x_train.shape[1])
    return Dataset(
        Path(path).stem,
        Dense(_tensor(x_train), mean, std),
        torch.from_numpy(y_train),
        Dense(_tensor(x_test), mean, std),
        torch.from_numpy(y_test),
        classes,
    )


def _read(path: str) -> dict[str, Array]:
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"path = '{path}' is not a file; an .npz file with x_train and y_train is accepted")
    try:
        with file.open("rb") as start:
            if start.read(6) == b"\x93NUMPY":
                raise UserError(
                    f"path = '{path}' holds a single array; an .npz file with x_train and y_train is accepted"
                )
        _check_sizes(path, file)
        with np.load(file, allow_pickle=False) as archive:
            found = {key: archive[key] for key in KEYS if key in archive}
            others = sorted(set(archive.files) - set(found))
    except UserError:
        raise
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"path = '{path}' cannot be read as an .npz file without pickles: {error}") from error
    missing = {"x_train", "y_train"} - set(found)
    if ("x_test" in found) != ("y_test" in found):
        missing |= {"x_test", "y_test"} - set(found)
    if missing:
        beside = f" (it has {', '.join(others)})" if others else ""
        raise UserError(f"path = '{path}' lacks {' and '.join(sorted(missing))}{beside}")
    return found


def _check_sizes(path: str, file: Path) -> None:
    """Refuse arrays that are larger than what is packed, or than memory, before NumPy reserves room for them."""
    with zipfile.ZipFile(file) as archive:
        packed = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in KEYS]
        # In the beginning as bytes, then as float32, and once more where a part becomes the test set.
        check_bytes(4 * sum(info.file_size for info in packed), f"path = '{path}'")
        for info in packed:
            with archive.open(info) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(stream)
            if prod(shape) * dtype.itemsize > info.file_size:
                raise UserError(f"path = '{path}': {info.filename} announces more values than it holds")


def _samples(path: str, found: dict[str, Array], part: str) -> tuple[Array, Array]:
    """Samples with channels first, and int64 labels."""
    x, y = found[f"x_{part}"], found[f"y_{part}"]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if (
        y.ndim != 1
        or not np.issubdtype(y.dtype, np.integer)
        or (len(y) and not 0 <= int(y.min()) <= int(y.max()) < 2**63)
    ):
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
