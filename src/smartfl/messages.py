"""One client's message, of which nothing may be taken for granted."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_STEPS = 1 << 53  # beyond it float64 no longer holds every whole number


class Refused(Exception):
    """Why a message is not used."""


def read_row(value: Any, size: int) -> Tensor:
    """A client's model as a plain (size,) tensor of real numbers; of any type, on any device."""
    if isinstance(value, np.ndarray):
        try:
            value = torch.from_numpy(np.ascontiguousarray(value))
        except (TypeError, ValueError):
            raise Refused(f"its model is an array of {value.dtype}") from None
    if not isinstance(value, Tensor):
        raise Refused(f"its model is no tensor but of type {type(value).__name__}")
    if value.shape != (size,):
        raise Refused(f"its model has shape {tuple(value.shape)}, ({size},) expected")
    if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_complex():
        raise Refused(f"its model is no plain tensor of real numbers ({value.dtype}, {value.layout})")
    return value.detach()


def read_count(value: Any) -> float:
    """A reported number of samples."""
    number = _real(value, "sample count")
    if not math.isfinite(number) or number < 0:
        raise Refused(f"its sample count is {number:g}")
    return number


def read_steps(value: Any) -> int:
    """A reported number of optimiser steps."""
    number = _real(value, "step count")
    if not 0 <= number <= MOST_STEPS or number != int(number):
        raise Refused(f"its step count is {number:g}")
    return int(number)


def _real(value: Any, what: str) -> float:
    if isinstance(value, Tensor) and value.ndim == 0 and not value.is_complex() and not value.is_meta:
        value = value.item()
    if not isinstance(value, Real):
        raise Refused(f"its {what} is no number but of type {type(value).__name__}")
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):
        raise Refused(f"its {what} is no number that a computer can hold") from None
