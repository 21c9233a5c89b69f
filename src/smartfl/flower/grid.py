"""Replies pulled one by one, so that one that cannot be decoded takes no other with it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

_TRANSPORT = ("httpx", "httpcore", "grpc", "requests", "urllib3")


class PatientGrid(Grid):
    """A grid around another one; only ``send_and_receive`` differs.

    Flower's own pulls all replies together, and a node that sends objects that do not fit together makes that raise:
    the run would end, and replies already confirmed would be lost.  Here such a reply counts as none, and
    ``unreadable`` says why by the id of the message that it answers.  A failure of the connection is still raised.
    """

    def __init__(self, grid: Grid, pause: float = 0.5) -> None:
        self.grid, self.pause = grid, pause
        self.unreadable: dict[str, str] = {}

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        waiting = [i for i in self.grid.push_messages(list(messages)) if i]
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting:
            still = []
            for message_id in waiting:
                found = self._pull(message_id)
                replies += found
                if not found and message_id not in self.unreadable:
                    still.append(message_id)
            waiting = still
            left = self.pause if end is None else end - time.monotonic()
            if left <= 0:
                break
            if waiting:
                time.sleep(min(self.pause, left))
        return replies

    def _pull(self, message_id: str) -> list[Message]:
        try:
            return list(self.grid.pull_messages([message_id]))
        except Exception as error:
            if isinstance(error, OSError) or type(error).__module__.split(".")[0] in _TRANSPORT:
                raise
            self.unreadable[message_id] = f"its reply cannot be decoded: {type(error).__name__}"
            return []

    # -- the rest is the grid's own ----------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        if hasattr(self.grid, "get_nodes"):  # since Flower 1.38; before, nothing else is known of nodes
            return list(self.grid.get_nodes())
        return [SimpleNamespace(node_id=node) for node in self.grid.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)
