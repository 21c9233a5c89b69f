"""Where a run took place."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("smartfl", "torch", "numpy", "scikit-learn", "pydantic", "safetensors")


def environment(workers: int, executor: str, device: str) -> dict[str, Any]:
    """Versions, revision, machine and threads, JSON-ready."""
    return {
        "python": sys.version.split()[0],
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "revision": revision(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "workers": 1 if executor == "serial" else workers,
        "threads": 1,  # of a process, workers and server alike, so that results do not depend on cores
        "executor": executor,
        "device": device,
    }


def revision() -> str | None:
    """The git commit of the source tree, with "+" if it was changed since; None outside a checkout."""
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(__file__).name)  # a .venv inside another project is not ours
        head = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if changed else head


def _git(here: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
