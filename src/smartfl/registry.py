"""Names become objects through entry points, so a third-party package adds a rule without a change here.

    [project.entry-points."smartfl.aggregators"]
    my_rule = "my_package.rules:MyRule"

A name with a colon is a dotted path ("my_module:MyModel") and needs no registration at all.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Container, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, cast

from pydantic import ConfigDict, ValidationError, create_model

from smartfl.errors import UserError

Kind = Literal["aggregators", "attacks", "clients", "datasets", "models", "partitions", "callbacks"]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)


@cache
def _entries(kind: Kind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"smartfl.{kind}")}


def names(kind: Kind) -> list[str]:
    """Every registered name of a kind, sorted."""
    return sorted(_entries(kind))


def resolve(kind: Kind, name: str, key: str = "") -> Callable[..., Any]:
    """The factory behind a name or a dotted path ``module:attribute``; ``key`` is the setting that gave the name."""
    entry = _entries(kind).get(name)
    what = f"{key} = '{name}'" if key else f"{kind.removesuffix('s')} '{name}'"
    if entry is not None:
        try:
            return cast(Callable[..., Any], entry.load())
        except (ImportError, AttributeError) as error:
            raise UserError(f"{what} cannot be loaded: {error}") from error
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(f"{what} cannot be loaded: {error}") from error
        if not callable(found):
            raise UserError(f"{what} is no class or function but of type {type(found).__name__}")
        return cast(Callable[..., Any], found)
    raise UserError(f"{what} is unknown; accepted: {', '.join(names(kind))}, or module:name")


def module_of(kind: Kind, name: str) -> str | None:
    """The module that a registered name or a dotted path is loaded from; None for a name that is neither."""
    entry = _entries(kind).get(name)
    if entry is not None:
        return entry.module
    return name.partition(":")[0] if ":" in name else None


def parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters of a factory."""
    return {
        k: p
        for k, p in inspect.signature(factory).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    target = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return typing.get_type_hints(target)
    except NameError:  # annotations imported under TYPE_CHECKING only: the settings go unchecked
        return {}


def build(
    kind: Kind,
    name: str,
    settings: Mapping[str, Any],
    setting: str = "",
    context: Mapping[str, Any] | None = None,
    *,
    key: str = "",
    general: Sequence[str] = (),
) -> Any:
    """Call the factory behind ``name`` with validated ``settings``.

    ``context`` holds what the caller supplies (labels, input shape, …) where the factory asks for it by name.
    A setting called ``rule`` that is a table with a ``name`` is built first: that is how wrappers nest.
    For error messages: ``setting`` is the table that holds the settings, ``general`` are its other keys, and ``key`` is
    the setting that gave the name.
    """
    factory = resolve(kind, name, key)
    accepted = parameters(factory)
    supplied = {k: v for k, v in (context or {}).items() if k in accepted}
    free = {k: p for k, p in accepted.items() if k not in supplied}
    given = dict(settings)
    check_finite(given, setting)
    if isinstance(inner := given.get("rule"), Mapping):
        table = {k: v for k, v in inner.items() if k != "name"}
        if "name" not in inner:
            raise UserError(f"{setting}.rule needs a name")
        given["rule"] = build(
            kind, inner["name"], table, f"{setting}.rule", context, key=f"{setting}.rule.name" if key else ""
        )
    hints = _hints(factory)
    fields: dict[str, Any] = {
        k: (hints.get(k, Any), ... if p.default is p.empty else p.default) for k, p in free.items()
    }
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())
    config = ConfigDict(extra="allow" if takes_any else "forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
    model = create_model(f"{name} settings", __config__=config, **fields)
    try:
        checked = model.model_validate(given)
    except ValidationError as error:
        raise UserError(explain(error, setting, [*general, *free], owner=name)) from error
    values = {k: getattr(checked, k) for k in checked.model_fields_set}
    try:
        return factory(**supplied, **values)
    except UserError as error:
        raise located(error, setting, accepted, key) from error


def check_finite(value: Any, where: str) -> None:
    """Refuse inf and nan anywhere in a setting: JSON has no such numbers, and a record would hold null instead."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} = {value}: a finite number is accepted")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_finite(inner, f"{where}.{key}" if where else str(key))
    if isinstance(value, list | tuple):
        for inner in value:
            check_finite(inner, where)


def located(error: UserError, setting: str, accepted: Container[str], key: str = "") -> UserError:
    """The same mistake with the place in front: "f = 9 …" becomes "aggregator.f = 9 …", others are of the ``key``."""
    if not setting:
        return error
    if str(error).split(" ", 1)[0].rstrip(":") in accepted:
        return UserError(f"{setting}.{error}")
    return UserError(f"{key or setting}: {error}")


def explain(error: ValidationError, setting: str, accepted: list[str] | None = None, owner: str = "") -> str:
    """A validation error as one sentence that names the setting and what is accepted (by ``owner``)."""
    first = error.errors()[0]
    where = ".".join([setting, *map(str, first["loc"])] if setting else map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        if accepted is None:
            return f"{where} is not a setting"
        named = ["name"] if owner else []  # of whatever has an owner, the name can be misspelt too
        alike = get_close_matches(str(first["loc"][-1]), [*accepted, *named], n=1)
        hint = f" (did you mean {alike[0]}?)" if alike else ""
        if not accepted:
            return f"{where} is not a setting{hint}: '{owner}' has none"
        return f"{where} is not a setting{hint}; accepted: {', '.join(accepted)}"
    if first["type"] == "missing":
        return f"{where} is required"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and (not where or message.startswith(f"{where}.")):  # it names the key itself
        return message
    if first["type"] == "model_type":
        message = f"a table is accepted, [{where}]"
    if first["type"] == "is_instance_of":
        message = "a table with a name is accepted"
    return f"{where} = {first['input']!r}: {message[:1].lower()}{message[1:]}"
