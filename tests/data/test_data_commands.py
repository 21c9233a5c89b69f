"""smartfl data status | where | fetch."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_formats import mnist_arrays, write_mnist
from typer.testing import CliRunner

import smartfl.commands.data as commands
from smartfl.data.mnist import FASHION_MNIST
from smartfl.errors import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SMARTFL_DATA", str(tmp_path))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    monkeypatch.delenv("SMARTFL_CACHE", raising=False)
    write_mnist(tmp_path / "MNIST/raw", mnist_arrays(), packed=True)
    return tmp_path


def run(*arguments: str) -> list[list[str]]:
    result = CliRunner().invoke(commands.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_status(home: Path) -> None:
    rows = {row[0]: row[1:] for row in run("status")}
    assert rows["mnist"][:2] == ["there", str(home / "MNIST/raw")]
    assert rows["cifar10"][:2] == ["missing", "smartfl data fetch cifar10"]
    assert rows["20newsgroups"][0] == "missing"
    fashion = all(place.is_dir() for place in FASHION_MNIST.elsewhere)
    assert rows["fashion-mnist"][0] == ("there" if fashion else "missing")


def test_status_of_another_directory(home: Path) -> None:
    rows = {row[0]: row[1:] for row in run("status", "--dir", str(home / "empty"))}
    assert rows["mnist"][0] == "missing"


def test_where(home: Path) -> None:
    rows = {row[0]: row[1:] for row in run("where")}
    assert rows["data"] == [str(home), "SMARTFL_DATA", "there"]
    assert rows["cache"] == [str(home / "cache"), "SMARTFL_CACHE", "absent"]


def test_fetch_leaves_alone_what_is_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(name: str, directory: Path | None, progress: object) -> tuple[Path, ...]:
        asked.append(name)
        return (home / "cifar-10-binary.tar.gz",)

    monkeypatch.setattr("smartfl.data.fetch.fetch", download)
    assert run("fetch", "mnist") == [[f"mnist is there: {home / 'MNIST/raw'}"]]
    assert asked == []
    assert run("fetch", "cifar10") == [[f"cifar10 fetched: {home / 'cifar-10-binary.tar.gz'}"]]
    run("fetch", "mnist", "--force")
    assert asked == ["cifar10", "mnist"]


def test_fetched_files_that_others_hide_are_told_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked files are read before packed ones: those that --force has fetched would change nothing."""
    raw = home / "MNIST/raw"
    packed = tuple(sorted(raw.iterdir()))
    bare = raw / "train-labels-idx1-ubyte"
    bare.write_bytes(b"wrong")
    monkeypatch.setattr("smartfl.data.fetch.fetch", lambda *_, **__: packed)
    result = CliRunner().invoke(commands.app, ["fetch", "mnist", "--force"], catch_exceptions=False)
    assert result.stderr == f"{bare} is read before what was fetched: remove it if it is wrong\n"


def test_an_unknown_name_is_a_user_error(home: Path) -> None:
    with pytest.raises(UserError, match=r"NAME = 'emnist': accepted are mnist, .*20newsgroups, all"):
        run("fetch", "emnist")
