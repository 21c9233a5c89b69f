"""A long run with attacks and a fault every 50 rounds: `make soak ROUNDS=2000`.

SmartFL over clients with SCAFFOLD's state, an attack on 40 % of the clients, worker processes.  Every 50 rounds the run
is broken off, in turn by SIGKILL, SIGTERM, a killed worker, Ctrl-C with a stopped worker, a torn line, a damaged
checkpoint; then it is resumed.  At the end: the memory of the run within 2 % of what it was after the first tenth, no
process, shared memory or half-written file left, and the records of a run that nothing disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from smartfl.runs.lines import whole_lines

EXPERIMENT = """
rounds = {rounds}
evaluate_every = 10
[data]
clients = 20
partition = "feddf"
alpha = 0.5
proxy.size = 64
[model]
name = "mlp"
hidden = [16]
[client]
algorithm = "scaffold"
optimizer = "sgd"
lr = 0.05
participation = 0.4
[attack]
name = "omniscient"
rate = 0.4
[aggregator]
name = "smartfl"
server_epochs = 5
"""


def alive(mark: str) -> dict[int, int]:
    """Processes that carry ``mark``, with their parents; only those are ever touched."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    found[int(entry.name)] = int(parent)
        except OSError:
            continue
    return found


def done(run: Path) -> int:
    file = run / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def resident(pid: int) -> float:
    """MB that the process has in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1e3
    return 0.0


def workers(process: subprocess.Popen[str], mark: str) -> list[int]:
    found = alive(mark)
    return [pid for pid, parent in found.items() if parent in found and parent != process.pid]


def send(number: signal.Signals) -> Callable[[subprocess.Popen[str], str, Path], None]:
    def act(process: subprocess.Popen[str], mark: str, run: Path) -> None:
        process.send_signal(number)

    return act


def kill_worker(process: subprocess.Popen[str], mark: str, run: Path) -> None:
    for pid in workers(process, mark)[:1]:
        os.kill(pid, signal.SIGKILL)


def stop_worker(process: subprocess.Popen[str], mark: str, run: Path) -> None:
    for pid in workers(process, mark)[:1]:
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)


def tear_line(process: subprocess.Popen[str], mark: str, run: Path) -> None:
    process.kill()
    process.wait()
    file = run / "coefficients.jsonl"
    os.truncate(file, file.stat().st_size - 5)


def damage_checkpoint(process: subprocess.Popen[str], mark: str, run: Path) -> None:
    process.kill()
    process.wait()
    newest = max((run / "checkpoints").glob("round-*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(bytes(content))


FAULTS = [
    send(signal.SIGKILL),
    send(signal.SIGTERM),
    kill_worker,
    stop_worker,
    tear_line,
    damage_checkpoint,
]


def soak(folder: Path, rounds: int, every: int) -> list[str]:
    """What is wrong at the end; nothing, where all is well."""
    mark = uuid.uuid4().hex
    before = set(os.listdir("/dev/shm"))
    file = folder / "soak.toml"
    file.write_text(EXPERIMENT.format(rounds=rounds))
    run, faults, wrong = folder / "run", 0, []
    command = [sys.executable, "-m", "smartfl.cli", "run", str(file), "--out", str(run), "--workers", "2", "--resume"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SMARTFL_SOAK": mark}
    while not (run / "result.json").exists():
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        goal = (done(run) // every + 1) * every
        while process.poll() is None and done(run) < goal:
            time.sleep(0.01)
        if process.poll() is None and goal < rounds:
            FAULTS[faults % len(FAULTS)](process, mark, run)
            faults += 1
        _, said = process.communicate(timeout=600)
        if process.returncode not in (0, 1, 130, 143, -9) or b"Traceback" in said:
            return [f"exit {process.returncode}: {said.decode()[:500]}"]
        end = time.monotonic() + 30
        while alive(mark) and time.monotonic() < end:
            time.sleep(0.05)
        if left := alive(mark):
            return [f"after fault {faults}: processes are left: {sorted(left)}"]
    print(f"{rounds} rounds, {faults} faults")
    reference = folder / "reference"
    memory = undisturbed(file, reference, environment, rounds)
    early, late = (
        sorted(part)[len(part) // 2]
        for part in (memory[len(memory) // 10 : len(memory) // 5], memory[-len(memory) // 10 :])
    )
    print(f"memory of the run without a fault: {early:.1f} MB after a tenth, {late:.1f} MB at the end")
    if late > 1.02 * early:
        wrong.append(f"memory grew from {early:.1f} to {late:.1f} MB")
    lines = [whole_lines(path / "rounds.jsonl") for path in (run, reference)]
    for line in (*lines[0], *lines[1]):
        del line["seconds"]
    if lines[0] != lines[1]:
        wrong.append("rounds.jsonl differs from that of a run without a fault")
    names = ("coefficients.jsonl", "model.safetensors", "result.json")
    other = [name for name in names if (run / name).read_bytes() != (reference / name).read_bytes()]
    wrong += [f"{name} differs from that of a run without a fault" for name in other]
    wrong += [f"left: {path}" for path in run.rglob("*.part")]
    wrong += [
        f"left in /dev/shm: {name}"
        for name in set(os.listdir("/dev/shm")) - before
        if name.startswith("torch_") and not _used(name)
    ]
    return wrong


def _used(segment: str) -> bool:
    """Whether the process that a segment is named after is alive: it is somebody else's."""
    return Path(f"/proc/{segment.split('_')[1]}").exists()


def undisturbed(file: Path, run: Path, environment: dict[str, str], rounds: int) -> list[float]:
    """The same run in one go; its memory over time in MB."""
    command = [sys.executable, "-m", "smartfl.cli", "run", str(file), "--out", str(run), "--executor", "serial"]
    process = subprocess.Popen(command, cwd=file.parent, env=environment, stdout=subprocess.DEVNULL)
    memory = []
    while process.poll() is None:
        if done(run):
            memory.append(resident(process.pid))
        time.sleep(0.05)
    return [m for m in memory if m > 0]


def main() -> int:
    """Exit status 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="rounds from one fault to the next")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smartfl-soak-") as folder:
        wrong = soak(Path(folder), arguments.rounds, arguments.every)
    print("\n".join(wrong) if wrong else "nothing is left, nothing differs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
