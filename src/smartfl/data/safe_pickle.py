"""Pickles that hold data only: arrays, lists, dicts, strings, bytes, numbers.

A pickle is a program; plain ``pickle.load`` runs whatever a stranger wrote into it. Here no global of the pickle is
ever imported: the handful of names that NumPy writes are answered by stand-ins of ours that collect bytes, and every
other name is refused. Arrays are then built from those bytes for a short list of plain dtypes, so not even NumPy's own
``__setstate__`` sees the file. Not even the standard unpickler does: see pickle_machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from smartfl.data.cache import Array
from smartfl.data.pickle_machine import Machine, Refused
from smartfl.errors import UserError

SCALARS = (bool, int, float, str, bytes, bytearray, np.generic)
PLAIN_DTYPE = re.compile(r"([<>|=]?)([biufSU]\d+)")


class _DType:
    """What the pickle says of a dtype: its code, and the byte order from its state."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else str(code)
        match = PLAIN_DTYPE.fullmatch(text)
        if match is None:
            raise Refused(f"an array of dtype {text!r}")
        self.order, self.code = match.groups()

    def __setstate__(self, state: Any) -> None:
        _, order, subarray, names, fields, *_ = state
        if subarray is not None or names is not None or fields is not None:
            raise Refused("an array with a structured dtype")
        self.order = order.decode("ascii") if isinstance(order, bytes) else str(order)
        if self.order not in ("<", ">", "|", "="):
            raise Refused(f"the byte order {self.order!r}")

    def resolve(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """The place of an array until its bytes arrive."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = _from_bytes(raw, dtype, shape, "F" if fortran else "C")


class _Bunch(dict[str, Any]):
    """scikit-learn's Bunch is a dict; the attributes that old versions stored beside it are ignored."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


class _Answer:
    """A stand-in for a global: callable, and closed to the pickle's attempts to set attributes on it."""

    __slots__ = ("_function",)
    answers = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> None:
        raise Refused("state for a function")


class _Budget:
    """Bytes that are made of others may be made of the same ones again and again: not more than the file bears."""

    def __init__(self, data: bytes) -> None:
        self._left = 4 * len(data) + (1 << 16)

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Refused("more bytes than it has")


def _from_bytes(raw: Any, dtype: Any, shape: Any, order: Any) -> Array:
    if not isinstance(dtype, _DType) or not isinstance(raw, (bytes, bytearray)):
        raise Refused("an array of Python objects")
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return np.frombuffer(raw, dtype.resolve()).reshape(sizes, order="F" if order in ("F", b"F") else "C")


def _empty_bytes(*args: Any) -> bytes:
    if args:
        raise Refused("bytes with arguments")
    return b""


def _finder(budget: _Budget, bunch: bool) -> Callable[[str, str], Any]:
    """Answers to the names that NumPy 1 and 2 write, and scikit-learn's Bunch; every other is refused."""

    def latin1(text: str, encoding: str) -> bytes:
        """Protocol 2 spells Python 3's bytes as a call of ``_codecs.encode``."""
        if encoding not in ("latin1", "latin-1"):
            raise Refused(f"the codec {encoding!r}")
        budget.spend(len(text))
        return text.encode("latin1")

    def scalar(dtype: Any, raw: Any = b"") -> Any:
        budget.spend(len(raw))
        return _from_bytes(raw, dtype, (), "C")[()]

    answers: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): _Answer(lambda *_: _Array()),
        ("numpy", "dtype"): _Answer(lambda code, *_: _DType(code)),
        ("_codecs", "encode"): _Answer(latin1),
        ("__builtin__", "bytes"): _Answer(_empty_bytes),
    }
    for core in ("numpy.core", "numpy._core"):
        answers[f"{core}.multiarray", "_reconstruct"] = _Answer(lambda *_: _Array())
        answers[f"{core}.multiarray", "scalar"] = _Answer(scalar)
        answers[f"{core}.numeric", "_frombuffer"] = _Answer(
            lambda raw, dtype, shape, order, *_: _Array(_from_bytes(raw, dtype, shape, order))
        )
    if bunch:
        for module in ("sklearn.utils._bunch", "sklearn.utils", "sklearn.datasets.base"):
            answers[module, "Bunch"] = _Answer(lambda *_: _Bunch())

    def find(module: str, name: str) -> Any:
        if (module, name) not in answers:
            raise Refused(f"the global {module}.{name}")
        return answers[module, name]

    return find


def safe_loads(data: bytes, file: object, bunch: bool = False) -> Any:
    """The plain data in a pickle; ``file`` names it in errors, ``bunch`` admits scikit-learn's Bunch as a dict.

    Strings that Python 2 wrote come as bytes, as they are. Anything but data is refused and nothing of it is run.
    """
    try:
        return _settle(Machine(_finder(_Budget(data), bunch)).run(data), {})
    except Refused as error:
        raise UserError(
            f"{file} is refused: its pickle holds {error}; accepted: NumPy arrays, lists, dicts, strings, numbers"
        ) from error
    except Exception as error:
        raise UserError(f"{file} is not a complete pickle of arrays: {error or type(error).__name__}") from error


def _settle(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """``value`` with arrays in the place of their stand-ins; lists and dicts are changed in place."""
    if value is None or isinstance(value, SCALARS):
        return value
    if isinstance(value, _Array) and isinstance(value.value, np.ndarray):
        return value.value
    if id(value) in seen:
        return seen[id(value)][1]
    if isinstance(value, tuple):
        settled = tuple(_settle(item, seen) for item in value)
        # The old tuple is kept with the answer: freed, its id could come back as another object's.
        seen[id(value)] = (value, settled)
        return settled
    if isinstance(value, list):
        seen[id(value)] = (value, value)
        for i, item in enumerate(value):
            value[i] = _settle(item, seen)
        return value
    if isinstance(value, dict) and all(key is None or isinstance(key, SCALARS) for key in value):
        seen[id(value)] = (value, value)
        for key, item in value.items():
            value[key] = _settle(item, seen)
        return value
    raise Refused(f"a {type(value).__name__.strip('_').lower()} that is not data")
