"""Hostile input by the million: `make fuzz SECONDS=3600 SEED=0`.

Four kinds, in turn: rows that clients send, through every rule; messages of any type, through ``collect``; data files
and files of run directories, valid ones with bytes changed; experiments as TOML.  Nothing may come out but a result
that is finite, or one sentence for the user (UserError), and nothing may take longer than some seconds.

A case is a kind and a number, so a finding is repeated by `--case KIND:NUMBER`; with bytes it is printed as a line for
corpus.jsonl, which `make test` goes through.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import io
import json
import logging
import math
import pickle
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from smartfl.data.arrays import arrays
from smartfl.data.idx import read_idx
from smartfl.data.image_folder import image_folder
from smartfl.data.safe_pickle import safe_loads
from smartfl.errors import UserError
from smartfl.experiment.build import build_rule
from smartfl.experiment.files import read_experiment
from smartfl.experiment.resolved import Resolved
from smartfl.experiment.schema import Experiment
from smartfl.flat import FlatSpec
from smartfl.registry import names
from smartfl.runs.checkpoint import load_checkpoint, save_checkpoint
from smartfl.runs.directory import read_table
from smartfl.runs.lines import whole_lines
from smartfl.screening import collect
from smartfl.state import State
from smartfl.types import Proxy, Server, Updates

SLOW = 10.0  # seconds
VALUES = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, 1e30, math.inf, -math.inf, math.nan)
WRAPPERS = ("bucketing", "nearest_neighbour_mixing", "clipping", "reestimated", "momentum")
CORPUS = Path(__file__).parent / "corpus.jsonl"
STACK: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    10**400,
    0.5,
    math.nan,
    math.inf,
    "7",
    "x",
    b"7",
    [],
    [1.0],
    {},
    (),
    object(),
    1j,
]


class Finding(Exception):
    """Something that should not have happened."""


def rows(case: random.Random) -> str:
    """A cohort of extreme numbers, through one rule."""
    n, model = case.randint(1, 9), nn.Linear(1, 2)
    spec = FlatSpec.of(model)
    pool = case.sample(VALUES, case.randint(1, len(VALUES)))
    matrix = torch.tensor(
        [[case.choice(pool) * case.choice((1, 1, case.random())) for _ in range(4)] for _ in range(n)]
    )
    if case.random() < 0.2 and n > 1:
        matrix[1] = matrix[0]
    counts = [case.choice((0, 1, 5, 1e300, 5e-324, -1, math.nan, math.inf)) for _ in range(n)]
    steps = [case.choice((0, 1, 9, 1 << 53, -1)) for _ in range(n)]
    name = case.choice(names("aggregators"))
    table: dict[str, Any] = {"name": name}
    if name in WRAPPERS:
        table["rule"] = {"name": case.choice([other for other in names("aggregators") if other not in WRAPPERS])}
    attack = {"name": "sign_flip", "rate": case.choice((0.1, 0.4, 0.9))} if case.random() < 0.8 else {}
    rule = build_rule(Experiment.of({"aggregator": table, "attack": attack}))
    labels = None if rule.needs_proxy == "unlabelled" else torch.tensor([0, 1, 0, 1])
    inputs = torch.tensor([[case.choice((0.0, 1.0, 1e30))] for _ in range(4)])
    server = Server(1, model, None if rule.needs_proxy == "no" else Proxy(inputs, labels, 2), num_clients=20)
    origin = torch.tensor([case.choice((0.0, 1.0, 1e30)) for _ in range(4)])
    updates = Updates.of(
        matrix, torch.tensor(counts, dtype=torch.float64), origin, num_steps=torch.tensor(steps), spec=spec
    )
    result = rule(updates, server)
    if not torch.isfinite(result.vector).all() or result.vector.shape != (4,):
        raise Finding(f"{table}: {result.vector}")
    if result.coefficients is not None and not torch.isfinite(result.coefficients).all():
        raise Finding(f"{table}: {result.coefficients}")
    return name


def messages(case: random.Random) -> str:
    """Fields of any type, through ``collect``."""

    def row() -> Any:
        good = torch.tensor([case.choice(VALUES) for _ in range(3)])
        kinds: list[Callable[[], Any]] = [
            lambda: good,
            lambda: good.numpy(),
            lambda: good.to(torch.float64) * 1e200,
            lambda: good.to(torch.complex64),
            lambda: good.to_sparse(),
            lambda: torch.ones(3, device="meta"),
            lambda: torch.ones([case.randint(0, 3) for _ in range(case.randint(0, 3))]),
            lambda: torch.ones(3, dtype=case.choice((torch.int8, torch.bool, torch.float16))),
            lambda: np.array([case.choice(STACK) for _ in range(3)] + [None], dtype=object)[:3],
            lambda: case.choice(STACK),
        ]
        return case.choice(kinds)()

    ids = range(case.randint(0, 5))
    number = [*STACK, torch.tensor(3), torch.ones(2), np.float32(2), np.int64(-3)]
    fields = [{i: case.choice(number) for i in ids if case.random() < 0.9} for _ in range(2)]
    storage = case.choice((None, "float16", "bfloat16"))
    found = collect({i: row() for i in ids}, fields[0], torch.zeros(3), FlatSpec.plain(3), fields[1], storage)
    if sorted([*found.ids, *(d.id for d in found.dropped or ())]) != list(ids):
        raise Finding("a client is neither taken nor refused")
    if not torch.isfinite(found.matrix).all():
        raise Finding("a row that is not finite was taken")
    return "messages"


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, x_train=np.ones((6, 4), np.float32), y_train=np.arange(6) % 2, x_test=np.ones((2, 4)), y_test=[0, 1])
    return file.getvalue()


def _png() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (5, 5)).save(file, "png")
    return file.getvalue()


def _checkpoint(part: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), State(1, [torch.ones(3)], [[1]], torch.zeros(0), rules=[{"m": 1}]), "owner")
        return (Path(folder) / f"round-000001.{part}").read_bytes()


LINES = b"".join(json.dumps({"round": t, "accuracy": 0.5, "dropped": []}).encode() + b"\n" for t in (1, 2, 3))
BATCH = {b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2], "names": ("a", 1.5, None)}
IDX = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6))


def _read_folder(folder: Path, content: bytes) -> None:
    for label in "ab":
        (folder / label).mkdir(exist_ok=True)
        for name in "xy":
            (folder / label / f"{name}.png").write_bytes(_png())
    (folder / "a" / "z.png").write_bytes(content)
    image_folder(str(folder), size=4)


def _read_checkpoint(part: str) -> Callable[[Path, bytes], None]:
    def read(folder: Path, content: bytes) -> None:
        for other in ("json", "safetensors"):
            (folder / f"round-000001.{other}").write_bytes(content if other == part else _checkpoint(other))
        found = load_checkpoint(folder, "owner")
        if found is not None and found.vectors[0].tolist() != [1, 1, 1]:
            raise Finding("a changed checkpoint was taken")

    return read


def _written(name: str, read: Callable[[Path], Any]) -> Callable[[Path, bytes], None]:
    def write(folder: Path, content: bytes) -> None:
        (folder / name).write_bytes(content)
        read(folder / name)

    return write


FILES: dict[str, tuple[Callable[[], bytes], Callable[[Path, bytes], Any]]] = {
    "idx": (lambda: IDX, _written("idx", read_idx)),
    "idx.gz": (lambda: gzip.compress(IDX, mtime=0), _written("idx.gz", read_idx)),
    "npz": (_npz, _written("own.npz", lambda path: arrays(str(path)))),
    "pickle": (lambda: pickle.dumps(BATCH, 2), lambda _, content: safe_loads(content, "batch")),
    "pickle4": (lambda: pickle.dumps(BATCH, 4), lambda _, content: safe_loads(content, "batch")),
    "image": (_png, _read_folder),
    "checkpoint.json": (lambda: _checkpoint("json"), _read_checkpoint("json")),
    "checkpoint.safetensors": (lambda: _checkpoint("safetensors"), _read_checkpoint("safetensors")),
    "rounds.jsonl": (lambda: LINES, _written("rounds.jsonl", whole_lines)),
    "result.json": (lambda: b'{"final": 0.5, "best": 0.5, "last_ten": 0.5, "rounds": 3}', _written("r", read_table)),
}


def mutated(case: random.Random, content: bytes) -> bytes:
    """``content`` with some bytes flipped, cut, repeated, put elsewhere or made extreme."""
    data = bytearray(content)
    for _ in range(case.choice((1, 1, 2, 4, 16))):
        at = case.randrange(len(data) + 1)
        match case.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << case.randrange(8)
            case 1:
                del data[at : at + case.choice((1, 4, 64))]
            case 2:
                data[at:at] = data[at : at + case.choice((1, 8, 64))] * case.choice((1, 3))
            case 3:
                data[at : at + 4] = case.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4, b"\xff\xff\xff\x7f"))
            case 4:
                data[at : at + 1] = bytes([case.randrange(256)])
            case _:
                data = data[:at]
        if not data:
            break
    return bytes(data)


def read_bytes(kind: str, content: bytes) -> None:
    """Read one mutated file or experiment."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "toml":
            (Path(folder) / "x.toml").write_bytes(content)
            Resolved.of(read_experiment(Path(folder) / "x.toml"))
        else:
            FILES[kind][1](Path(folder), content)


TOML = b"""name = "x"
seed = 3
rounds = 4
evaluate_every = 1
[data]
dataset = "digits"
clients = 8
alpha = 0.5
options = { a = [1, 2.5, inf], b = "c" }
proxy.size = 16
[model]
name = "mlp"
hidden = [8]
[client]
algorithm = "fedprox"
mu = 0.1
lr = 1e-2
participation = 0.5
[attack]
name = "label_flip"
rate = 0.25
[aggregator]
name = "krum"
f = 1
"""
WORDS = (
    b"inf nan -1 0 1e400 99999999999999999999 true [] {} [[1]] \"\" 'a:b' 'os:system' 2020-01-01 smartfl median".split()
)


def toml(case: random.Random) -> bytes:
    """An experiment with values changed, or bytes."""
    if case.random() < 0.4:
        return mutated(case, TOML)
    lines = TOML.split(b"\n")
    for _ in range(case.randint(1, 3)):
        at = case.randrange(len(lines))
        key, equals, _ = lines[at].partition(b"=")
        lines[at] = key + equals + b" " + case.choice(WORDS) if equals else case.choice((b"", lines[at] * 2))
    return b"\n".join(lines)


def one(kind: str, number: int) -> bytes | None:
    """Run a case; returns its bytes where it has some, also by way of ``content`` of an exception."""
    case = random.Random(f"{kind}:{number}")
    torch.manual_seed(number)
    content = None
    try:
        if kind == "rows":
            rows(case)
        elif kind == "messages":
            messages(case)
        elif kind == "toml":
            content = toml(case)
            read_bytes(kind, content)
        else:
            content = mutated(case, FILES[kind][0]())
            read_bytes(kind, content)
    except UserError:
        pass
    except Exception as error:
        error.content = content  # type: ignore[attr-defined]
        raise
    return content


KINDS = ("rows", "messages", "toml", *FILES)


def main() -> int:
    """Exit status 1 with findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="one case again, with its traceback: KIND:NUMBER")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    if arguments.case:
        kind, _, number = arguments.case.rpartition(":")
        one(kind, int(number))
        return 0
    done, found, slowest = Counter[str](), Counter[str](), (0.0, "")
    end, number = time.monotonic() + arguments.seconds, arguments.seed << 32
    while time.monotonic() < end:
        number += 1
        for kind in KINDS:
            started = time.monotonic()
            done[kind] += 1
            try:
                one(kind, number)
                if (took := time.monotonic() - started) > SLOW:
                    raise Finding(f"{took:.1f} s")
                slowest = max(slowest, (took, f"{kind}:{number}"))
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                what = (
                    f"{kind}: {type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {str(error)[:100]}"
                )
                found[what] += 1
                if found[what] == 1:
                    print(f"{what}\n  --case {kind}:{number}", flush=True)
                    if (content := getattr(error, "content", None)) is not None:
                        print(
                            "  " + json.dumps({"kind": kind, "bytes": base64.b64encode(content).decode()}), flush=True
                        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"seed {arguments.seed}, {arguments.seconds:g} s: {sum(done.values())} cases ({dict(done)})")
    print(f"findings: {sum(found.values())}, {len(found)} different; slowest {slowest[0]:.2f} s; peak {peak:.0f} MB")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
