"""Arrays and metrics that nodes send, decoded without trusting a word of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from torch import Tensor

log = logging.getLogger("flwr")  # so that ``flwr log`` shows it
_HEADER = 10_000  # bytes of an npy header at most; ours have about 128


class Refused(ValueError):
    """A reply that no rule may see; the message is the reason."""


def read_array(array: Array, shape: Sequence[int], kinds: str, what: str) -> Tensor:
    """The tensor in ``array``, which must have this shape and a dtype of one of these ``kinds`` ("f", "iu").

    ``Array.shape`` and ``Array.dtype`` are the sender's claims, and ``Array.numpy()`` allocates what the npy header
    asks for.  So the header is read first, and then the bytes must be exactly as many as it needs.
    """
    if array.stype != "numpy.ndarray":
        raise Refused(f"{what} is encoded as '{array.stype}'")
    head = BytesIO(bytes(array.data[:_HEADER]))
    try:
        version = np.lib.format.read_magic(head)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        found, fortran, dtype = reader(head)
    except Exception as error:
        raise Refused(f"{what} has no valid npy header") from error
    if dtype.kind not in kinds:
        raise Refused(f"{what} has dtype {dtype}")
    if found != tuple(shape):
        raise Refused(f"{what} has shape {_short(found)}, {tuple(shape)} expected")
    start, size = head.tell(), math.prod(found) * dtype.itemsize
    if len(array.data) != start + size:
        raise Refused(f"{what} has {len(array.data) - start} bytes of data, {size} expected")
    values = np.frombuffer(array.data, dtype, offset=start).astype(dtype.newbyteorder("="))  # a copy, and writable
    return torch.from_numpy(values.reshape(found, order="F" if fortran else "C"))


def array_of(tensor: Tensor) -> Array:
    """A tensor as Flower sends it."""
    return Array(np.asarray(tensor.detach().cpu().numpy()))


def model_record(content: RecordDict, key: str) -> ArrayRecord:
    """The record that holds the model: the one called ``key``, or the only one."""
    records = content.array_records
    if key in records:
        return records[key]
    if len(records) != 1:
        raise Refused(f"its reply has {len(records)} ArrayRecords and none called '{key}'")
    return next(iter(records.values()))


def scalars(content: RecordDict) -> dict[str, float]:
    """Every single number in the reply's metrics; lists are left out."""
    found: dict[str, float] = {}
    for record in content.metric_records.values():
        found |= {str(k): _number(v) for k, v in record.items() if isinstance(v, int | float)}
    return found


def mean_metrics(replies: Sequence[dict[str, float]], weights: Sequence[float], weight_key: str) -> MetricRecord | None:
    """Each metric's weighted mean over the replies that have a finite value for it; None where there is none."""
    sums: dict[str, list[tuple[float, float]]] = {}
    for metrics, weight in zip(replies, weights, strict=True):
        for name, value in metrics.items():
            if name != weight_key and math.isfinite(value) and weight > 0:
                sums.setdefault(name, []).append((value, weight))
    means: dict[str, Any] = {}
    for name, pairs in sums.items():
        most = max(weight for _, weight in pairs)
        total = math.fsum(weight / most for _, weight in pairs)
        mean = sum(value * (weight / most / total) for value, weight in pairs)
        if math.isfinite(mean):
            means[name] = mean
    return MetricRecord(means) if means else None


def _number(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _short(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 60 else f"{text[:57]}..."
