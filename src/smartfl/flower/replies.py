"""What came back in a round: rows for the rule, and for everyone else the reason why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import torch
from flwr.app import Message, RecordDict
from torch import Tensor

from smartfl.errors import UserError
from smartfl.flower.client import OWN, STATE
from smartfl.flower.layout import Layout
from smartfl.flower.records import Refused, model_record, read_array, scalars
from smartfl.flower.roster import failure
from smartfl.types import Dropped

Counts = Literal["reported", "equal"] | float
_STEPS = "num-steps"
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Trained:
    """A node's training reply.

    row, counters   its model: (d,), and the integer buffers
    examples        its sample count as ``counts`` has it
    steps           its optimiser steps, the metric "num-steps"; 1 if it has none (only FedNova asks)
    metrics         all its metrics
    own             (S,) what it keeps of a client algorithm; empty without one
    """

    row: Tensor
    counters: list[int]
    examples: float
    steps: int
    metrics: dict[str, float]
    own: Tensor


@dataclass(frozen=True)
class Reader:
    """How replies are read.

    counts       "reported": as the node says; "equal": 1 for everyone; a number: as the node says, up to that
    weight_key   the metric with the sample count
    arrays_key   the record with the model
    own_size     S, how much of a client algorithm's state each reply must bring back
    """

    counts: Counts
    weight_key: str
    arrays_key: str
    own_size: int = 0

    def __post_init__(self) -> None:
        if self.counts in ("reported", "equal"):
            return
        if isinstance(self.counts, str) or not 0 < self.counts < math.inf:
            raise UserError(f"counts = {self.counts!r}: accepted are 'reported', 'equal' and a largest count above 0")

    def keeping(self, own_size: int) -> Reader:
        """The same reader for replies that bring back a client's own state (own_size,)."""
        return replace(self, own_size=own_size)

    def trained(self, content: RecordDict, layout: Layout, origin: Tensor) -> Trained:
        """A training reply; raises ``Refused`` where it is none."""
        row, counters = layout.read(model_record(content, self.arrays_key), origin)
        metrics = scalars(content)
        steps = metrics.get(_STEPS, 1.0)
        if not 0 <= steps < 2**53:
            raise Refused(f"its number of steps is {steps:g}")
        return Trained(row, counters, self.examples(metrics), int(steps), metrics, self._own(content))

    def examples(self, metrics: Mapping[str, float]) -> float:
        """The sample count that a node is taken to have."""
        if self.counts == "equal":
            return 1.0
        if self.weight_key not in metrics:
            raise Refused(f"its reply has no number '{self.weight_key}' (counts = 'equal' does without)")
        said = metrics[self.weight_key]
        if not 0 <= said < math.inf:
            raise Refused(f"its sample count is {said:g}")
        return said if isinstance(self.counts, str) else min(said, self.counts)

    def _own(self, content: RecordDict) -> Tensor:
        if self.own_size == 0:
            return torch.empty(0)
        if OWN not in content.array_records or STATE not in content.array_records[OWN]:
            raise Refused(f"its reply has no '{OWN}': its client app has no ClientMod")
        own = read_array(content.array_records[OWN][STATE], (self.own_size,), "f", f"'{OWN}'")
        if not torch.isfinite(own).all():
            raise Refused(f"'{OWN}' is not finite")
        return own.to(torch.float32)


@dataclass(frozen=True)
class Inbox(Generic[T]):
    """A round's replies, by client id.

    found     what was made of each reply that could be read
    refused   who sent something that no rule may see: certainly faulty
    absent    who sent nothing: dead, late, or its client app failed; maybe honest
    """

    found: dict[int, T]
    refused: tuple[Dropped, ...]
    absent: tuple[Dropped, ...]

    @classmethod
    def of(
        cls,
        replies: Iterable[Message],
        sent: Sequence[tuple[int, Message]],
        unreadable: Mapping[str, str],
        read: Callable[[RecordDict], T],
    ) -> Inbox[T]:
        """Sort ``replies`` to the messages ``sent``, client ids beside them; ``unreadable`` is PatientGrid's.

        A reply is its sender's by the message that it answers: an error that the SuperLink reports for a dead node
        comes from the SuperLink.  Only a client's first reply counts.
        """
        asked = {message.metadata.message_id: client for client, message in sent}
        found: dict[int, T] = {}
        refused = {asked[i]: reason for i, reason in unreadable.items() if i in asked}
        absent: dict[int, str] = {}
        for reply in replies:
            client = asked.get(reply.metadata.reply_to_message_id)
            if client is None or client in found or client in refused or client in absent:
                continue
            if reply.has_error():
                absent[client] = failure(reply.error)
                continue
            try:
                found[client] = read(reply.content)
            except Refused as error:
                refused[client] = str(error)
            except Exception as error:  # whatever a hostile reply makes of our own code is its sender's fault
                refused[client] = f"its reply cannot be read: {type(error).__name__}: {str(error)[:200]}"
        absent |= {i: "no reply in time" for i in asked.values() if i not in found | refused | absent}
        return cls(dict(sorted(found.items())), _dropped(refused), _dropped(absent))


def _dropped(reasons: Mapping[int, str]) -> tuple[Dropped, ...]:
    return tuple(Dropped(i, reasons[i]) for i in sorted(reasons))
