"""Where data and caches are looked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from smartfl.data.home import cache_home, complete, data_home, missing


def test_the_environment_sets_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMARTFL_DATA", str(tmp_path))
    monkeypatch.delenv("SMARTFL_CACHE", raising=False)
    assert data_home() == tmp_path
    assert cache_home() == tmp_path / "cache"
    assert data_home(tmp_path / "given") == tmp_path / "given"
    monkeypatch.setenv("SMARTFL_CACHE", str(tmp_path / "elsewhere"))
    assert cache_home(tmp_path / "given") == tmp_path / "elsewhere"


def test_the_default_is_the_users_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as unset."""
    monkeypatch.setenv("SMARTFL_DATA", "")
    assert data_home() == Path(platformdirs.user_data_dir("smartfl", appauthor=False))


def test_a_tilde_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMARTFL_DATA", "~/sets")
    assert data_home() == Path.home() / "sets"


def test_complete_takes_each_file_with_any_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.gz").touch()
    (tmp_path / "b").touch()
    assert complete(tmp_path, ["a", "b"], ("", ".gz")) == [tmp_path / "a.gz", tmp_path / "b"]
    assert complete(tmp_path, ["a", "c"], ("", ".gz")) is None
    (tmp_path / "c").mkdir()
    assert complete(tmp_path, ["c"]) is None


def test_missing_names_files_places_and_command() -> None:
    message = str(missing("mnist", ["a", "b"], [Path("/x"), Path("/y"), Path("/x")]))
    assert "looked for a, b in /x, /y;" in message
    assert "`smartfl data fetch mnist`" in message
    assert "SMARTFL_DATA" in message


def test_loaders_import_nothing_heavy() -> None:
    """Naming a dataset must not cost the start-up time of scikit-learn, matplotlib, pooch or datasets."""
    code = (
        "import sys, smartfl.commands.data, smartfl.data.newsgroups, smartfl.data.huggingface, smartfl.data.statistics;"
        "print([m for m in ('sklearn', 'scipy', 'matplotlib', 'pooch', 'requests', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
