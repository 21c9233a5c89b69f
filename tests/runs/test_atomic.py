"""Writes happen whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from smartfl.records.lines import read_lines
from smartfl.runs.atomic import append_line, write_bytes, write_text


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "file.json"
    write_text(path, "old")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    write_text(path, "old")
    with pytest.raises(TypeError):
        write_bytes(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_text() == "old"


WRITER = """
import sys
from pathlib import Path
sys.modules["smartfl"] = type(sys)("smartfl")  # the package itself imports torch, which takes longer than this test
sys.modules["smartfl"].__path__ = [sys.argv[2]]
from smartfl.runs.atomic import write_bytes
path, k = Path(sys.argv[1]), 0
while True:
    k = (k + 1) % 10
    write_bytes(path, str(k).encode() * 300_000)
"""


def test_a_killed_writer_never_leaves_half_a_file(tmp_path):
    import smartfl

    path = tmp_path / "big"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), smartfl.__path__[0]])
    try:
        end = time.monotonic() + 30
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(20):
            content = path.read_bytes()
            assert len(content) == 300_000
            assert content == content[:1] * 300_000
            time.sleep(0.003)
    finally:
        process.kill()
        process.wait()
    content = path.read_bytes()
    assert content == content[:1] * 300_000


def test_lines_are_appended_and_a_truncated_last_one_is_left_out(tmp_path):
    path = tmp_path / "rounds.jsonl"
    append_line(path, '{"round": 1}')
    append_line(path, '{"round": 2}')
    assert read_lines(path) == [{"round": 1}, {"round": 2}]
    whole = path.read_bytes()
    for cut in range(len('{"round": 1}\n') + 1, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert read_lines(path) == [{"round": 1}]
