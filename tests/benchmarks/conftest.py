"""The scripts of benchmarks/ import each other by name: their directory is on the path while a test has one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def script():
    """script(name): a module of benchmarks/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        yield importlib.import_module
