"""Freed memory is used again without the system's help."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from smartfl.executors.memory import keep_freed_memory

torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(500_000) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_second_use_of_freed_blocks_touches_no_new_page():
    """Eight blocks of 2 MB are 3,900 pages of 4 KB (or a few huge ones)."""
    faults = {
        how: int(subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "returned")
    }
    assert faults["kept"] < 10
    assert faults["kept"] <= faults["returned"]
