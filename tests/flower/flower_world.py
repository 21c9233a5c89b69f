"""A Flower federation inside this process: a grid, nodes, and every way in which a node can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import nn

from smartfl.types import Proxy

try:  # since Flower 1.38 a message is only made where a run is known
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:
    pass
else:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

HONEST = 6
Node = Callable[[Message], Message | None]


class Broken(ValueError):
    """What Flower's grid raises when a reply's objects do not fit together."""


@dataclass
class LoopGrid(Grid):
    """A grid that answers messages by calling functions.  A node of ``nodes`` is its name and its function.

    Flower's ids of the nodes are 63-bit numbers that are new in every grid, as in a real federation.
    """

    nodes: dict[str, Node]
    first: int = 2**62
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = {self.first + 7 * n: name for n, name in enumerate(self.nodes)}
        self._waiting: dict[str, Message] = {}

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1)

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return Message(*arguments, **named)

    def get_node_ids(self) -> list[int]:
        return list(self._ids)

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=i, name=name, public_key=b"") for i, name in self._ids.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        pushed = []
        for message in messages:
            self.sent.append(message)
            message.metadata.__dict__["_message_id"] = f"message-{len(self.sent)}"
            pushed.append(message.metadata.message_id)
            self._waiting[message.metadata.message_id] = message
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for message_id in list(message_ids):
            message = self._waiting[message_id]
            reply = self.nodes[self._ids[message.metadata.dst_node_id]](message)
            if reply is not None:
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Flower's own loop, in one go: nobody answers later."""
        return self.pull_messages(self.push_messages(messages))


def model() -> nn.Module:
    """3 features, 3 classes, with BatchNorm: variances and a counter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def samples(seed: int, count: int = 24) -> Proxy:
    """Points in space; the class is the largest coordinate."""
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    return Proxy(inputs, inputs.argmax(dim=1), 3)


@cache
def _progress(client: int) -> dict[str, torch.Tensor]:
    """What a client's training adds to the initial model."""
    net, own = model(), samples(100 + client)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(own.inputs), own.labels).backward()
        optimizer.step()
    return {k: v - before[k] for k, v in net.state_dict().items()}


@lru_cache(maxsize=64)
def _moved(client: int, got: tuple[tuple[str, bytes], ...]) -> dict[str, Array]:
    """The model ``got`` after the client's training; most first rounds of the table begin at the same one."""
    moved = {k: np.load(BytesIO(data)) + _progress(client)[k].numpy() for k, data in got}
    moved["1.running_var"] = moved["1.running_var"].clip(0.01)  # a sum, and no honest variance is negative
    return {k: Array(np.asarray(v)) for k, v in moved.items()}


def arrays_of(net: nn.Module) -> ArrayRecord:
    return ArrayRecord({k: Array(np.asarray(v.numpy())) for k, v in net.state_dict().items()})


def honest(client: int, examples: float = 24) -> Node:
    """A client that moves the model it gets by what its own data would have moved the first one."""

    def node(message: Message) -> Message:
        if message.metadata.message_type.startswith("query"):
            return Message(Error(2, "no query function"), reply_to=message)
        metrics = MetricRecord({"num-examples": examples, "loss": 1.0})
        content = RecordDict({"metrics": metrics})
        if message.metadata.message_type.startswith("train"):
            got = tuple((k, a.data) for k, a in message.content["arrays"].items())
            content["arrays"] = ArrayRecord(dict(_moved(client, got)))
        return Message(content, reply_to=message)

    return node


def array(data: bytes, shape: tuple[int, ...] = (4, 3), dtype: str = "float32", stype: str = "numpy.ndarray") -> Array:
    return Array(dtype, shape, stype, data)


def lying_header(shape: tuple[int, ...]) -> bytes:
    """An npy file that claims ``shape`` and has 48 bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 48


@dataclass(frozen=True)
class Fault:
    """What a node does wrong: ``change`` its honest reply in place, or give another one, or None.

    outcome   "refused", "absent", or "kept" where the reply is well-formed and the rule has to cope
    reason    what the record says of it
    """

    outcome: str
    change: Callable[[Message], Message | None]
    reason: str = ""

    def node(self, client: int) -> Node:
        inner = honest(client)

        def node(message: Message) -> Message | None:
            return self.change(inner(message))

        return node


def _values(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Message], Message]:
    """A change of the values in the reply's model."""

    def changed(reply: Message) -> Message:
        if "arrays" in reply.content:
            values = {k: np.array(a.numpy()) for k, a in reply.content["arrays"].items()}
            change(values)
            reply.content["arrays"] = ArrayRecord({k: Array(np.asarray(v)) for k, v in values.items()})
        return reply

    return changed


def _entry(entry: Array) -> Callable[[Message], Message]:
    """Another array in the place of the first weight matrix."""

    def changed(reply: Message) -> Message:
        if "arrays" in reply.content:
            reply.content["arrays"]["0.weight"] = entry
        return reply

    return changed


def _metrics(**new: Any) -> Callable[[Message], Message]:
    """Other metrics; None deletes one."""

    def changed(reply: Message) -> Message:
        for key, value in new.items():
            name = key.replace("_", "-")
            if value is None:
                del reply.content["metrics"][name]
            else:
                reply.content["metrics"][name] = value
        return reply

    return changed


def _content(change: Callable[[RecordDict], None]) -> Callable[[Message], Message]:
    def changed(reply: Message) -> Message:
        change(reply.content)
        return reply

    return changed


def _without_arrays(content: RecordDict) -> None:
    content.pop("arrays", None)


def _two_models(content: RecordDict) -> None:
    if "arrays" in content:
        content["one"] = content["two"] = content.pop("arrays")


def _no_key(content: RecordDict) -> None:
    if "arrays" in content:
        del content["arrays"]["0.weight"]


def _raise(reply: Message) -> Message:
    raise Broken("unexpected set of children")


def _pickled() -> bytes:
    data = np.lib.format.magic(1, 0)
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }".ljust(117) + b"\n"
    return data + len(header).to_bytes(2, "little") + header + b"cos\nsystem\n(S'false'\ntR."


def _set(key: str, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def change(values: dict[str, np.ndarray]) -> None:
        values[key] = np.full_like(values[key], value)

    return change


def _scale(factor: float) -> Callable[[dict[str, np.ndarray]], None]:
    def change(values: dict[str, np.ndarray]) -> None:
        for key in values:
            if values[key].dtype.kind == "f" and "running" not in key:
                values[key] *= factor

    return change


def _reshape(values: dict[str, np.ndarray]) -> None:
    values["0.weight"] = values["0.weight"].reshape(3, 4)


FAULTS: dict[str, Fault] = {
    "extra metric": Fault("kept", _metrics(extra=1.0)),
    "missing key": Fault("refused", _content(_no_key), "no '0.weight'"),
    "no num-examples": Fault("refused", _metrics(num_examples=None), "no number 'num-examples'"),
    "list num-examples": Fault("refused", _metrics(num_examples=[1, 2]), "no number 'num-examples'"),
    "wrong shape": Fault("refused", _values(_reshape), "shape (3, 4)"),
    "pickled array": Fault("refused", _entry(array(_pickled())), "dtype object"),
    "huge npy header": Fault("refused", _entry(array(lying_header((10**9, 10**9)))), "shape (1000000000, 1000000000)"),
    "short npy data": Fault("refused", _entry(array(lying_header((4, 3))[:-8])), "40 bytes of data, 48 expected"),
    "no npy at all": Fault("refused", _entry(array(b"\0" * 48)), "no valid npy header"),
    "other encoding": Fault("refused", _entry(array(b"", stype="pickle")), "encoded as 'pickle'"),
    "strings": Fault("refused", _entry(Array(np.full((4, 3), "x"))), "dtype <U1"),
    "no arrays": Fault("refused", _content(_without_arrays), "0 ArrayRecords"),
    "two models": Fault("refused", _content(_two_models), "2 ArrayRecords"),
    "NaN": Fault("refused", _values(_set("3.bias", np.nan)), "is nan"),
    "Inf": Fault("refused", _values(_set("3.bias", np.inf)), "is inf"),
    "negative variance": Fault("refused", _values(_set("1.running_var", -1.0)), "variance is negative"),
    "counter of 2^62": Fault("kept", _values(_set("1.num_batches_tracked", 2**62))),
    "1e38": Fault("kept", _values(_set("0.weight", 1e38))),
    "times -20": Fault("kept", _values(_scale(-20.0))),
    "1e12 samples": Fault("kept", _metrics(num_examples=1e12)),
    "-5 samples": Fault("refused", _metrics(num_examples=-5), "sample count is -5"),
    "NaN samples": Fault("refused", _metrics(num_examples=float("nan")), "sample count is nan"),
    "app raises": Fault(
        "absent", lambda r: Message(Error(2, "boom"), reply_to=_as_message(r)), "raised an error: boom"
    ),
    "no reply": Fault("absent", lambda r: None, "no reply in time"),
    "torn objects": Fault("refused", _raise, "cannot be decoded: Broken"),
}


def _as_message(reply: Message) -> Message:
    """The message that ``reply`` answers, as far as an answer needs it."""
    original = Message(RecordDict(), reply.metadata.src_node_id, reply.metadata.message_type)
    original.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return original


def federation(fault: Fault | None = None) -> LoopGrid:
    """Six honest nodes, and one with ``fault``."""
    nodes = {f"node-{i}": honest(i) for i in range(HONEST)}
    if fault is not None:
        nodes[f"node-{HONEST}"] = fault.node(HONEST)
    return LoopGrid(nodes)
