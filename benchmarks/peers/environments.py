"""Peers live in virtual environments of their own under .peers/, made here and never by the core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".peers"
COMMON = ("torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1")
REQUIREMENTS = {
    "flower": ("flwr[simulation]==1.41.0",),  # 1.42.0 asks for a certifi newer than some mirrors have
    "pfl": ("pfl[pytorch]==0.6.0",),
}


def python(environment: str | None) -> Path:
    """The interpreter of an environment, which is made first if need be; None is the environment we run in."""
    if environment is None:
        return Path(sys.executable)
    home = HOME / environment
    wanted = "\n".join((*COMMON, *REQUIREMENTS[environment]))
    stamp = home / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"installing {environment} into {home}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([home / "bin/python", "-m", "pip", "install", "--quiet", *wanted.split("\n")], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return home / "bin/python"


def variables(threads: int) -> dict[str, str]:
    """What a peer's process sees: explicit thread counts, our packages, and no calls home."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    count = str(threads)
    return kept | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "benchmarks"), str(ROOT / "src"))),
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
