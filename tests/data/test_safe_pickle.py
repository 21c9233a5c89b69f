"""The unpickler that lets data out and nothing else."""

from __future__ import annotations

import collections
import datetime
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_formats import Malicious, python2_pickle
from sklearn.utils import Bunch

from smartfl.data.safe_pickle import safe_loads
from smartfl.errors import UserError

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
ARRAYS = [
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1, -2], dtype=">i4"),
    np.array(["sci.med", "ü"]),
    np.array([b"a", b"bc"]),
    np.array([True, False]),
    np.array(3.5, dtype=np.float32),
    np.zeros((0, 4)),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_come_back(array: np.ndarray, protocol: int) -> None:
    back = safe_loads(pickle.dumps([array, array], protocol), "file")
    for copy in back:
        assert copy.dtype == array.dtype
        np.testing.assert_array_equal(copy, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_data_come_back(protocol: int) -> None:
    value = {"a": [1, 2.5, None, True, "é", b"\xff", b"", (1, (2,))], 3: {"n": np.float64(0.5), "i": np.int16(-7)}}
    assert safe_loads(pickle.dumps(value, protocol), "file") == value


def test_shared_tuples_and_cycles() -> None:
    """The same tuple twice, holding an array; and a list that holds itself."""
    pair = (np.arange(3), "x")
    back = safe_loads(pickle.dumps([pair, pair, [pair]], 4), "file")
    for found in (back[0], back[1], back[2][0]):
        assert found[0].tolist() == [0, 1, 2]
    ring: list[Any] = [1]
    ring.append(ring)
    back = safe_loads(pickle.dumps(ring, 4), "file")
    assert back[1] is back


def test_python2_strings_stay_bytes() -> None:
    back = safe_loads(python2_pickle({"data": np.array([[0, 255]], np.uint8), "labels": [3]}), "file")
    assert back[b"labels"] == [3]
    assert back[b"data"].tolist() == [[0, 255]]


def test_bunch_only_where_asked_for() -> None:
    data = pickle.dumps(Bunch(target=np.arange(2), data=["a", "b"]))
    back = safe_loads(data, "file", bunch=True)
    assert back["data"] == ["a", "b"]
    assert back["target"].tolist() == [0, 1]
    with pytest.raises(UserError, match=r"file is refused: its pickle holds the global sklearn\.utils\._bunch\.Bunch"):
        safe_loads(data, "file")


@pytest.mark.parametrize("bunch", [False, True])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_refused_and_not_run(tmp_path: Path, protocol: int, bunch: bool) -> None:
    trap = tmp_path / "trap"
    with pytest.raises(UserError, match=r"batch_1 is refused: its pickle holds the global (_io|io)\.open"):
        safe_loads(pickle.dumps({"data": Malicious(trap)}, protocol), "batch_1", bunch)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (collections.OrderedDict(a=1), r"collections\.OrderedDict"),
        (datetime.date(2020, 1, 1), r"datetime\.date"),
        (np.random.default_rng, r"numpy\.random\..*default_rng"),
        (eval, r"builtins\.eval"),
        (np.load, r"numpy\.load"),
        (np.ma.masked_array([1, 2]), r"numpy\.ma"),
    ],
)
def test_other_globals_are_named(value: Any, name: str) -> None:
    with pytest.raises(UserError, match=name):
        safe_loads(pickle.dumps(value), "file")


@pytest.mark.parametrize(
    "value",
    [
        np.array([object, "x"], dtype=object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        {1, 2},
        frozenset("a"),
        1j,
        [np.dtype("f4")],
        {"t": np.ndarray},
    ],
    ids=str,
)
def test_anything_but_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(UserError, match="is refused"):
        safe_loads(pickle.dumps(value), "file")


HEAD = b"cnumpy.core.multiarray\n_reconstruct\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"}X\x08\x00\x00\x00__code__K\x01sb0K\x01.",  # attributes for a function of ours, then just a 1
        HEAD + b"N}X\x08\x00\x00\x00__call__K\x01s\x86b0K\x01.",  # the same by way of slots
        HEAD + b"(cnumpy\nndarray\n(I0\ntS'b'\ntR.",  # an array whose contents never come
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",  # a codec of the writer's choice
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00O8I0\nI1\ntR.",  # pointers as data
        b"c__builtin__\nbytes\n(I9999999999\ntR.",  # a very long string
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST, the opcode before classes had __reduce__
    ],
)
def test_crafted_programs_are_refused(data: bytes) -> None:
    with pytest.raises(UserError, match=r"^crafted is "):
        safe_loads(data, "crafted")


def test_a_dtype_cannot_be_smuggled_in_as_a_byte_order() -> None:
    """ "O," before "u2" would make a dtype of pointers and numbers."""
    data = python2_pickle(np.array([1, 2], dtype="<u2"))
    assert safe_loads(data, "file").tolist() == [1, 2]
    with pytest.raises(UserError, match="the byte order 'O,'"):
        safe_loads(data.replace(b"T\x01\x00\x00\x00<", b"T\x02\x00\x00\x00O,"), "file")


def test_a_wrong_amount_of_bytes_is_refused() -> None:
    """The header says 2 × 3 values; one byte of the six is replaced by nothing."""
    data = python2_pickle(np.arange(6, dtype=np.uint8).reshape(2, 3))
    short = data.replace(b"T\x06\x00\x00\x00\x00\x01\x02\x03\x04\x05", b"T\x05\x00\x00\x00\x00\x01\x02\x03\x04")
    assert short != data
    with pytest.raises(UserError, match="file is not a complete pickle of arrays"):
        safe_loads(short, "file")


def test_truncation_at_every_byte_is_refused() -> None:
    data = pickle.dumps({"data": np.arange(4, dtype=np.uint8), "labels": [1, 2]}, 2)
    for keep in range(len(data)):
        with pytest.raises(UserError, match="file is not a complete pickle"):
            safe_loads(data[:keep], "file")


def test_a_deep_nest_is_an_error_not_a_crash() -> None:
    with pytest.raises(UserError, match="file is not a complete pickle"):
        safe_loads(b"]" * 100_000 + b"a" * 99_999 + b".", "file")
