"""smartfl: federated learning that keeps working when clients' data differ and when clients lie."""

from smartfl.errors import UserError, WorkerError
from smartfl.flat import FlatSpec
from smartfl.simplex import project_simplex
from smartfl.types import Aggregate, Dropped, Proxy, Server, Updates

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "Dropped",
    "FlatSpec",
    "Proxy",
    "Server",
    "Updates",
    "UserError",
    "WorkerError",
    "__version__",
    "project_simplex",
]
