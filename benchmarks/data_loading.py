"""Seconds and memory to load each dataset, cold (decoded anew) and warm (from the cache of decoded arrays).

    SMARTFL_DATA=/path/to/data python benchmarks/data_loading.py [NAME …]

Prints a Markdown table. Every load runs in its own process with one thread. Wall seconds depend on what else the
machine does, CPU seconds hardly. "peak" is the growth of the resident set over that of a process that has imported
torch and the loader; "private" is what remains of it as memory of the process's own, the rest being pages of mapped
files that processes share and the system can take back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("mnist", "fashion-mnist", "cifar10", "cifar100", "20newsgroups")


def memory() -> dict[str, float]:
    """Megabytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}
    return {"peak": sizes["VmHWM"], "now": sizes["VmRSS"], "private": sizes["RssAnon"]}


def measure(name: str) -> dict[str, float]:
    """Load one dataset in this process."""
    from smartfl.registry import build, resolve

    resolve("datasets", name)
    before = memory()
    wall, cpu = time.perf_counter(), time.process_time()
    data = build("datasets", name, {})
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = memory()
    assert len(data.train) > 0, "the dataset must be alive while its memory is counted"
    return {
        "wall": wall,
        "cpu": cpu,
        "peak": after["peak"] - before["now"],
        "private": after["private"] - before["private"],
    }


def main(names: tuple[str, ...]) -> None:
    print("| dataset | load | wall s | CPU s | peak MB | private MB |")
    print("|---|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"SMARTFL_CACHE": cache, "OMP_NUM_THREADS": "1"}
        for name in names:
            for load in ("cold", "warm"):
                command = [sys.executable, __file__, "--child", name]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                m = json.loads(done.stdout)
                print(
                    f"| {name} | {load} | {m['wall']:.2f} | {m['cpu']:.2f} | {m['peak']:.0f} | {m['private']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main(tuple(sys.argv[1:]) or NAMES)
