"""Which code that is not ours an experiment runs, by checksum: an edited rule is another experiment."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from smartfl.registry import Kind, module_of, resolve

KEYS: dict[Kind, str] = {
    "models": "model.name",
    "clients": "client.algorithm",
    "datasets": "data.dataset",
    "partitions": "data.partition",
    "attacks": "attack.name",
    "aggregators": "aggregator.name",
}
LIBRARIES = {"site-packages", "dist-packages"}


def own_code(tables: Mapping[str, Any]) -> dict[str, str]:
    """Name → ten hex digits of its source, for every name in ``tables`` that smartfl does not ship.

    The source is that of the module which the name loads and of the modules beside or below it that it uses; of an
    installed package it is the module alone.  Code without a file (a notebook's) has no entry.
    """
    found = {}
    for kind, name in _names(tables):
        module = module_of(kind, name)
        if module is None or _is_ours(module):
            continue
        resolve(kind, name, KEYS[kind])
        if digest := _digest(sys.modules[module]):
            found[name] = digest
    return found


def _names(tables: Mapping[str, Any]) -> Iterator[tuple[Kind, str]]:
    """Every name of something to load."""
    models = tables["model"]
    for table in models if isinstance(models, list) else [models]:
        yield "models", table["name"]
    yield "clients", tables["client"]["algorithm"]
    yield "datasets", tables["data"]["dataset"]
    yield "partitions", tables["data"]["partition"]
    if tables["attack"]["name"] != "none":
        yield from _nested("attacks", tables["attack"])
    yield from _nested("aggregators", tables["aggregator"])


def _nested(kind: Kind, table: Mapping[str, Any]) -> Iterator[tuple[Kind, str]]:
    yield kind, table["name"]
    if isinstance(inner := table.get("rule"), Mapping):
        yield from _nested(kind, inner)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "smartfl"


def _digest(module: ModuleType) -> str | None:
    sources = {m.__name__: file.read_bytes() for m in _used(module) if (file := _file(m)) is not None}
    if not sources:
        return None
    whole = hashlib.sha256()
    for name in sorted(sources):
        whole.update(f"{name} {len(sources[name])}\n".encode() + sources[name])
    return whole.hexdigest()[:10]


def _used(start: ModuleType) -> list[ModuleType]:
    """``start``, and those of the modules that it uses which lie beside or below it."""
    file = _file(start)
    used, waiting = {start.__name__: start}, [start]
    if file is None or LIBRARIES.intersection(file.parts):
        return [start]
    package = sys.modules.get(start.__name__.partition(".")[0], start)
    base = (_file(package) or file).parent
    while waiting:
        for name in _imported(waiting.pop()):
            other = sys.modules.get(name)
            if other is None or other.__name__ in used or _is_ours(other.__name__):
                continue
            place = _file(other)
            if place is not None and base in place.parents and not LIBRARIES.intersection(place.parts):
                used[other.__name__] = other
                waiting.append(other)
    return list(used.values())


def _imported(module: ModuleType) -> set[str]:
    """The names of modules in the import statements of a module, wherever in it they are."""
    file = _file(module)
    try:
        tree = ast.parse(b"" if file is None else file.read_bytes())
    except (SyntaxError, ValueError):  # an extension module
        return set()
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                source = resolve_name("." * node.level + source, module.__package__ or "")
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return found


def _file(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if isinstance(name, str) and Path(name).is_file() else None
