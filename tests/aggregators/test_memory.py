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
extra = {}
for name, settings in rules.items():
    resolve("aggregators", name)(**settings)(small)  # what it loads of torch and NumPy stays, and is not counted
    rule = resolve("aggregators", name)(**settings)
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    result = rule(updates)
    extra[name] = 1024 * (kilobytes("VmHWM") - before) / (4 * n * d)
before = kilobytes("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
copy = updates.matrix.clone()
extra["a copy"] = 1024 * (kilobytes("VmHWM") - before) / (4 * n * d)
print(json.dumps(extra))
"""


@pytest.mark.skipif(not RESET.exists(), reason="the peak of a process is read from Linux's /proc")
def test_no_rule_takes_more_than_a_quarter_of_the_matrix() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    extra = json.loads(run.stdout)
    assert extra.pop("a copy") > 0.9  # the gauge sees what torch allocates
    assert {name: share for name, share in extra.items() if share > 0.25} == {}
