"""How a table of an experiment is called in a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any


@cache
def _class_names() -> dict[str, str]:
    return {entry.name: entry.attr for entry in entry_points(group="smartfl.aggregators")}


def method_name(aggregator: Mapping[str, Any]) -> str:
    """``SmartFL (literal)``, ``Bucketing(Krum)``: the class behind the name, its variant, the rule it wraps.

    The class name comes from the entry point's text; nothing is imported, and an unknown name stands for itself.
    """
    name = str(aggregator.get("name", "unknown rule"))
    shown = _class_names().get(name, name.rpartition(":")[2])
    if isinstance(rule := aggregator.get("rule"), Mapping):
        shown = f"{shown}({method_name(rule)})"
    variant = aggregator.get("variant")
    return f"{shown} ({variant})" if variant else shown


def attack_label(attack: Mapping[str, Any]) -> str:
    """``label flip 0.4``, ``label flip 0.4 from round 10``; empty where nobody attacks."""
    name = str(attack.get("name") or "none")
    if name == "none":
        return ""
    rate, since = attack.get("rate"), attack.get("since", 1)
    label = name.rpartition(":")[2].replace("_", " ")
    if rate is not None:
        label += f" {shown(rate)}"
    return label if since == 1 else f"{label} from round {since}"


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as ``data.proxy.size`` → value, in order; of several tables under one key, each gets its number."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
            for place, inner in enumerate(value):
                yield from flatten(inner, f"{prefix}{key}." if len(value) == 1 else f"{prefix}{key}.{place}.")
        else:
            yield f"{prefix}{key}", value


def shown(value: object) -> str:
    """A setting's value as a person would type it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return "none" if value is None else str(value)
