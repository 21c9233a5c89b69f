"""Decoded arrays on disk: kept, verified, rebuilt."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smartfl.data.cache import Decoded, cached
from smartfl.errors import UserError

BIG = np.arange(3 << 19, dtype=np.uint8)  # above the size from which files are mapped
SMALL = np.array([[1.5, -2.0]], np.float32)


class Builder:
    """Counts how often the arrays had to be decoded."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"big": BIG, "small": SMALL, "count": np.array(7), "none": np.zeros((0, 3), np.int32)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"abc")
    return path


def load(source: Path, build: Callable[[], dict[str, np.ndarray]], **settings: object) -> Decoded:
    return cached("toy", [source], build, lambda _: None, source.parent / "cache", settings)


def entries(source: Path) -> list[Path]:
    return sorted((source.parent / "cache").iterdir())


def same(decoded: Decoded) -> bool:
    expected = Builder()()
    return set(decoded.arrays) == set(expected) and all(
        a.dtype == expected[k].dtype and np.array_equal(a, expected[k]) for k, a in decoded.arrays.items()
    )


def test_the_second_load_reads(source: Path) -> None:
    build = Builder()
    assert same(load(source, build))
    warm = load(source, build)
    assert same(warm)
    assert build.calls == 1
    assert warm.sha256["big"] == hashlib.sha256(BIG.tobytes()).hexdigest()


def test_entries_are_plain_npy(source: Path) -> None:
    load(source, Builder())
    (entry,) = entries(source)
    np.testing.assert_array_equal(np.load(entry / "big.npy", allow_pickle=False), BIG)
    assert json.loads((entry / "manifest.json").read_text())["arrays"]["small"]["shape"] == [1, 2]


def test_loaded_arrays_are_the_callers_own(source: Path) -> None:
    """Writing into a loaded array changes neither the cache nor the next caller's array."""
    build = Builder()
    load(source, build)
    load(source, build).arrays["big"][:] = 0
    assert same(load(source, build))
    assert build.calls == 1


@pytest.mark.parametrize("change", ["size", "time", "settings"])
def test_a_changed_source_or_setting_is_decoded_again(source: Path, change: str) -> None:
    build = Builder()
    load(source, build)
    if change == "size":
        source.write_bytes(b"abcd")
    if change == "time":
        os.utime(source, ns=(1, 1))
    load(source, build, **({"split": "other"} if change == "settings" else {}))
    assert build.calls == 2
    # What was made from files that are no more is removed; other settings live side by side.
    assert len(entries(source)) == (2 if change == "settings" else 1)


@pytest.mark.parametrize("victim", ["big.npy", "small.npy", "count.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_a_damaged_entry_is_rebuilt(source: Path, victim: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    build = Builder()
    load(source, build)
    file = entries(source)[0] / victim
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-1 if victim != "manifest.json" else 0] ^= 1
    file.write_bytes({"flip": data, "cut": data[:-1], "remove": b"", "empty": b""}[damage])
    if damage == "remove":
        file.unlink()
    with caplog.at_level(logging.WARNING):
        assert same(load(source, build))
    assert "will be rebuilt" in caplog.text
    assert build.calls == 2
    assert same(load(source, build))
    assert build.calls == 2


def test_an_npy_swapped_for_a_pickle_is_not_loaded(source: Path) -> None:
    build = Builder()
    load(source, build)
    np.save(entries(source)[0] / "small.npy", np.array([print], dtype=object), allow_pickle=True)
    assert same(load(source, build))
    assert build.calls == 2


def test_what_is_refused_is_not_kept(source: Path) -> None:
    def refuse(_: Decoded) -> None:
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        cached("toy", [source], Builder(), refuse, source.parent / "cache")
    assert not (source.parent / "cache").exists()


def test_no_directory_no_caching(source: Path) -> None:
    """A file stands where the cache directory should be: nothing can be written, not even by root."""
    (source.parent / "cache").write_text("in the way")
    build = Builder()
    assert same(load(source, build))
    assert same(load(source, build))
    assert build.calls == 2
    assert (source.parent / "cache").read_text() == "in the way"


def test_a_full_disk_leaves_no_half_entry(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        assert same(load(source, Builder()))
    assert entries(source) == []


def test_abandoned_drafts_are_swept(source: Path) -> None:
    """A draft of two days ago belongs to a process that died; one of now may be another process at work."""
    old, new = (source.parent / "cache" / f".draft-{age}" for age in ("old", "new"))
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (os.path.getmtime(new) - 2 * 86_400,) * 2)
    load(source, Builder())
    assert not old.exists()
    assert new.exists()
