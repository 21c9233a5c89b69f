"""Who the nodes are: small ids that outlast restarts, and which of them take part in a round."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from smartfl.errors import UserError
from smartfl.flower.records import log
from smartfl.rng import numpy_stream
from smartfl.runs.atomic import write_text

QUERY = "query.partition"  # the only question that is ever put to nodes: which partition they have
_PARTITION = "partition-id"
_REASONS = {
    1: "its client app could not be loaded",
    2: "its client app raised an error",
    5: "it is not reachable any more",
    6: "a mod of its client app refused",
    8: "its client app crashed",
}


class Roster:
    """Client ids by node: a node keeps its id as long as its key is the same.

    The key is the name that ``flwr supernode register --name`` gave, else the SHA-256 of its public key.  Nodes of a
    simulation have neither: they are asked for their partition.  The map is saved in ``path``, so a restarted server
    knows everyone again; Flower's own node ids are random and new at each registration.
    """

    def __init__(self, path: Path | None, node_key: Callable[[Any], str] | None = None) -> None:
        self._path, self._node_key = path, node_key
        self._ids: dict[str, int] = {}
        self._known: dict[int, str] = {}  # Flower's node id → key, while this process lives
        if path is not None and path.exists():
            self._ids = _saved_ids(path)

    @property
    def size(self) -> int:
        """One more than the largest client id so far."""
        return max(self._ids.values(), default=-1) + 1

    def present(self, grid: Grid, timeout: float = 300.0) -> dict[int, int]:
        """Client id → Flower's node id of the nodes that are connected."""
        nodes = _nodes(grid)
        fresh = {node: key for node, info in nodes.items() if node not in self._known and (key := self._key(info))}
        unnamed = [node for node in nodes if node not in self._known and node not in fresh]
        fresh |= _partitions(grid, unnamed, timeout)
        self._known |= {node: fresh.get(node, f"node:{node}") for node in nodes if node not in self._known}
        self._enrol(self._known[node] for node in nodes)
        found: dict[int, int] = {}
        for node in nodes:  # two connections of one key cannot both be it: the first one counts
            found.setdefault(self._ids[self._known[node]], node)
        return found

    def name(self, client: int) -> str:
        """The node's name, or the beginning of its key."""
        key = next((key for key, i in self._ids.items() if i == client), f"client:{client}")
        kind, _, value = key.partition(":")
        return value if kind == "name" else f"{kind}-{value[:12]}"

    def _key(self, info: Any) -> str:
        if self._node_key is not None:
            return self._node_key(info)
        if name := getattr(info, "name", ""):
            return f"name:{name}"
        public = getattr(info, "public_key", b"") or b""
        # Simulated nodes have random bytes there, new in every run.
        return f"key:{hashlib.sha256(public).hexdigest()}" if public.startswith(b"-----BEGIN") else ""

    def _enrol(self, keys: Iterable[str]) -> None:
        fresh = sorted({key for key in keys if key not in self._ids}, key=_order)
        for key in fresh:
            kind, _, value = key.partition(":")
            taken = set(self._ids.values())
            wanted = int(value) if kind == "partition" and int(value) not in taken else None
            self._ids[key] = wanted if wanted is not None else max(taken, default=-1) + 1
        if fresh and self._path is not None:
            write_text(self._path, json.dumps(self._ids, indent=1))


def wait_for(roster: Roster, grid: Grid, least: int, patience: float | None) -> dict[int, int]:
    """The nodes that are present as soon as they are ``least``, or after ``patience`` seconds if there are any."""
    started = said = time.monotonic()
    while True:
        present = roster.present(grid)
        now = time.monotonic()
        if len(present) >= least or (present and patience is not None and now - started >= patience):
            return present
        if now - said >= 10 or said == started:
            said = now + 1e-9
            log.info("Waiting for nodes: %d of %d are connected", len(present), least)
        time.sleep(1)


def sample(seed: int, purpose: str, t: int, clients: Iterable[int], size: int, wish: Any = None) -> list[int]:
    """``size`` of ``clients`` uniformly without replacement, ascending; as the simulator draws them.

    ``wish`` is the rule's own probabilities for a list of clients, where it has any (S-FedAvg).
    """
    eligible = sorted(clients)
    p = None if wish is None else wish(eligible).numpy()
    rng = numpy_stream(seed, purpose, t)
    return sorted(int(i) for i in rng.choice(eligible, min(size, len(eligible)), replace=False, p=p))


def failure(error: Error) -> str:
    """Why there is no reply, in a few words; a reason given by the node is shortened."""
    said = (error.reason or "").strip().splitlines()
    detail = f": {said[-1][:200]}" if said else ""
    return _REASONS.get(error.code, f"error {error.code}") + detail


def _order(key: str) -> tuple[bool, int, str]:
    """Partitions first and by number, as each of them wants its own number as id."""
    kind, _, value = key.partition(":")
    return (False, int(value), "") if kind == "partition" else (True, 0, key)


def _nodes(grid: Grid) -> dict[int, Any]:
    """The connected nodes by Flower's node id; before Flower 1.38 nothing else is known of them."""
    if hasattr(grid, "get_nodes"):
        return {int(info.node_id): info for info in grid.get_nodes()}
    return dict.fromkeys(map(int, grid.get_node_ids()))


def _partitions(grid: Grid, nodes: list[int], timeout: float) -> dict[int, str]:
    """Node → key of those who say which partition they have; nobody may say what another one says too."""
    if not nodes:
        return {}
    questions = [Message(RecordDict(), node, QUERY) for node in nodes]
    replies = list(grid.send_and_receive(questions, timeout=timeout))
    asked = {q.metadata.message_id: node for q, node in zip(questions, nodes, strict=True)}
    said: dict[int, int] = {}
    for reply in replies:
        node = asked.get(reply.metadata.reply_to_message_id)
        if node is not None and not reply.has_error() and (number := _partition(reply.content)) is not None:
            said[node] = number
    numbers = list(said.values())
    return {node: f"partition:{number}" for node, number in said.items() if numbers.count(number) == 1}


def _partition(content: RecordDict) -> int | None:
    for record in content.metric_records.values():
        value = record.get(_PARTITION)
        if isinstance(value, int) and 0 <= value < 2**31:
            return value
    return None


def _saved_ids(path: Path) -> dict[str, int]:
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ids = {str(key): int(i) for key, i in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' does not say which client is which node: {error}") from error
    if len(set(ids.values())) != len(ids):
        raise UserError(f"'{path}' gives two nodes the same id")
    return ids
