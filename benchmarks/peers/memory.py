"""Peak memory of a process and all it starts: the sum of proportional set sizes, sampled from /proc."""

from __future__ import annotations

import os
import threading
import time

GROWTH = 1.01  # resident pages must grow by this factor before the proportional set sizes are read again
RESCAN = 3  # samples between two looks for new processes


def _stat(pid: str) -> tuple[int, int, int] | None:
    """(parent, session, start time) of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


def _rss(pid: int) -> int:
    """Resident pages: a hundred times cheaper to ask for than the proportional set size, and never below it."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1])
    except OSError:
        return 0


def _pss(pid: int) -> int:
    """Proportional set size in bytes: own pages, and a share of those that several processes map."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")), 0)
    except OSError:
        return 0


class Tree:
    """The processes that descend from ``root`` or share its session, orphans included."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._seen: dict[int, int] = {}

    def alive(self) -> list[int]:
        """Process ids; one once seen stays a member as long as it is the same process."""
        stats = {int(p): s for p in os.listdir("/proc") if p.isdigit() and (s := _stat(p)) is not None}
        members = {pid for pid, start in self._seen.items() if pid in stats and stats[pid][2] == start}
        members |= {pid for pid, (_, session, _) in stats.items() if pid == self.root or session == self.root}
        grown = True
        while grown:
            children = {pid for pid, (parent, _, _) in stats.items() if parent in members} - members
            members |= children
            grown = bool(children)
        self._seen |= {pid: stats[pid][2] for pid in members if pid in stats}
        return sorted(members & stats.keys())


class PeakMemory:
    """Samples a tree in the background; ``peak`` in bytes, ``cost`` the share of a core that the sampling itself took.

    The kernel walks all pages for a proportional set size, which would slow down those most who have many processes.
    So it is read only when the resident pages of the tree reach a new height.
    """

    def __init__(self, root: int, interval: float = 0.2) -> None:
        self.tree, self.interval = Tree(root), interval
        self.peak, self.processes, self.cost = 0, 0, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        started = time.monotonic()
        members: list[int] = []
        count = highest = 0
        while not self._stop.wait(self.interval):
            if count % RESCAN == 0:
                members = self.tree.alive()
            count += 1
            resident = sum(map(_rss, members))
            if resident > GROWTH * highest:
                highest = resident
                total = sum(map(_pss, members))
                if total > self.peak:
                    self.peak, self.processes = total, len(members)
            self.cost = time.thread_time() / (time.monotonic() - started)
