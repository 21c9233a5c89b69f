"""smartfl: federated learning that keeps working when clients' data differ and when clients lie."""

from typing import TYPE_CHECKING

from smartfl.lazy import lazy

if TYPE_CHECKING:
    from smartfl.errors import UserError as UserError
    from smartfl.errors import WorkerError as WorkerError
    from smartfl.experiment.schema import Experiment as Experiment
    from smartfl.flat import FlatSpec as FlatSpec
    from smartfl.records.result import Result as Result
    from smartfl.records.round import RoundRecord as RoundRecord
    from smartfl.simplex import project_simplex as project_simplex
    from smartfl.simulation import Simulation as Simulation
    from smartfl.types import Aggregate as Aggregate
    from smartfl.types import Dropped as Dropped
    from smartfl.types import Proxy as Proxy
    from smartfl.types import Server as Server
    from smartfl.types import Updates as Updates

__version__ = "0.1.0"

_HOMES = {
    "Aggregate": "smartfl.types",
    "Dropped": "smartfl.types",
    "Experiment": "smartfl.experiment.schema",
    "FlatSpec": "smartfl.flat",
    "Proxy": "smartfl.types",
    "Result": "smartfl.records.result",
    "RoundRecord": "smartfl.records.round",
    "Server": "smartfl.types",
    "Simulation": "smartfl.simulation",
    "Updates": "smartfl.types",
    "UserError": "smartfl.errors",
    "WorkerError": "smartfl.errors",
    "project_simplex": "smartfl.simplex",
}

__getattr__ = lazy(__name__, _HOMES)

__all__ = [
    "Aggregate",
    "Dropped",
    "Experiment",
    "FlatSpec",
    "Proxy",
    "Result",
    "RoundRecord",
    "Server",
    "Simulation",
    "Updates",
    "UserError",
    "WorkerError",
    "__version__",
    "project_simplex",
]


def __dir__() -> list[str]:
    return __all__
