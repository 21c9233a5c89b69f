"""smartfl in Flower deployments and simulations: any rule as a strategy, client algorithms as a mod.

Nothing here is imported by the core, and Flower itself only when a name below is used.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from smartfl.errors import UserError
from smartfl.lazy import lazy

if TYPE_CHECKING:
    from smartfl.flower.client import ClientMod as ClientMod
    from smartfl.flower.strategy import AggregatorStrategy as AggregatorStrategy

_HOMES = {
    "AggregatorStrategy": "smartfl.flower.strategy",
    "ClientMod": "smartfl.flower.client",
}
_find = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES and find_spec("flwr") is None:
        raise UserError(f"smartfl.flower.{name} needs Flower 1.24 or newer: pip install 'smartfl[flower]'")
    return _find(name)


__all__ = ["AggregatorStrategy", "ClientMod"]


def __dir__() -> list[str]:
    return __all__
