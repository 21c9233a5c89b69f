"""What a rule takes beside the matrix: a few vectors and blocks, never a second matrix."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RESET = Path("/proc/self/clear_refs")
PROGRAM = """
import json, re
from pathlib import Path
import torch
from smartfl.registry import resolve
from smartfl.types import Updates

torch.set_num_threads(2)
n, d = 48, 1_000_000
updates = Updates.of(torch.randn(n, d))

def kilobytes(what):
    return int(re.search(rf"{what}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

rules = {
    "fedavg": {}, "median": {}, "trimmed_mean": {"b": 11}, "krum": {"f": 11}, "multi_krum": {"f": 11},
    "bulyan": {"f": 11}, "geometric_median": {}, "dnc": {"f": 11}, "norm_clipping": {},
    "centered_clipping": {"iterations": 3},
}
small = Updates.of(torch.randn(n, 30_000))
def share(act):
    # Of the matrix, what it takes at its peak. The least of three: on many cores the kernel's counters run behind.
    takes = []
    for _ in range(3):
        before = kilobytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        result = act()
        takes.append(1024 * (kilobytes("VmHWM") - before) / (4 * n * d))
        del result
    return min(takes)

extra = {"a copy": share(updates.matrix.clone)}
for name, settings in rules.items():
    rule = resolve("aggregators", name)(**settings)
    rule(small)  # what it loads of torch and NumPy stays, and is not counted
    extra[name] = share(lambda: resolve("aggregators", name)(**settings)(updates))
print(json.dumps(extra))
"""


@pytest.mark.skipif(not RESET.exists(), reason="the peak of a process is read from Linux's /proc")
def test_no_rule_takes_more_than_a_quarter_of_the_matrix() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    extra = json.loads(run.stdout)
    assert extra.pop("a copy") > 0.9  # the gauge sees what torch allocates
    assert {name: share for name, share in extra.items() if share > 0.25} == {}
