"""Flower's commands as processes: started, asked, killed, and none left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "SMARTFL_FEDERATION"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait(what: str, done: Callable[[], Any], seconds: float) -> Any:
    """Poll until ``done()`` is true; its value."""
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        if found := done():
            print(f"[{time.monotonic() - started:4.0f} s] {what}", flush=True)
            return found
        time.sleep(0.2)
    raise TimeoutError(f"{what}: not within {seconds:.0f} s")


@dataclass
class Federation:
    """Processes of one federation under ``root``; each has a home and a log of its own."""

    root: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self, name: str) -> dict[str, str]:
        home = self.root / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return {
            **os.environ,
            MARK: self.mark,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """A process in a session of its own; its log is appended to."""
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*map(str, command)],
                cwd=self.root,
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running[name] = process
        return process

    def ask_smartfl(self, *command: str | Path) -> str:
        """Run a ``smartfl`` command to its end."""
        return self.ask(*command, program="smartfl")

    def ask(self, *command: str | Path, check: bool = True, program: str = "flwr") -> str:
        """Run a ``flwr`` command to its end; what it printed."""
        done = subprocess.run(
            [program, *map(str, command)],
            cwd=self.root,
            env=self.environment("user"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{program} {' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def ask_json(self, *command: str | Path) -> Any:
        """The same with ``--format json``."""
        printed = self.ask(*command, "--format", "json")
        return json.loads(printed[printed.index("{") :])

    def stop(self, name: str) -> None:
        """Let a process end in its own way: a SuperNode that is killed cannot come back for about a minute."""
        process = self.running[name]
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kill a process and all that it started."""
        process = self.running.pop(name)
        for pid in [process.pid, *_started_by(process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(timeout=30)

    def close(self) -> list[str]:
        """Kill everything; the commands of what was left over all the same."""
        for name in list(self.running):
            self.kill(name)
        for _ in range(50):  # Flower's helpers end by themselves when they see that their parent is gone
            if not (pids := _marked(self.mark)):
                break
            time.sleep(0.2)
        left = {pid: _command(pid) for pid in pids}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return list(left.values())

    def config(self, **superlinks: str) -> None:
        """The user's ``config.toml``: a superlink's name → its settings."""
        self.environment("user")
        text = "[superlink]\n" + "".join(f"[superlink.{name}]\n{settings}\n" for name, settings in superlinks.items())
        (self.root / "homes" / "user" / "config.toml").write_text(text, encoding="utf-8")


def healthy(port: int, authority: Path | None) -> bool:
    """Whether a SuperLink answers."""
    context = None if authority is None else ssl.create_default_context(cafile=str(authority))
    scheme = "http" if authority is None else "https"
    try:
        with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/health", timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _started_by(pid: int) -> list[int]:
    """All that descends from a process, and the rest of its session: helpers that outlived it have another parent."""
    children: dict[int, list[int]] = {}
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, _, session = entry.read_text().rsplit(")", 1)[1].split()[:4]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append(int(entry.parent.name))
        if int(session) == pid:
            found.append(int(entry.parent.name))
    queue = [pid]
    while queue:
        fresh = children.get(queue.pop(), [])
        found += fresh
        queue += fresh
    return found


def _marked(mark: str) -> list[int]:
    """Processes with this federation's mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return str(pid)
