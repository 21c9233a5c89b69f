"""End a run that gets no better."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from smartfl.errors import UserError
from smartfl.records.round import RoundRecord
from smartfl.records.run import RunRecord
from smartfl.tracking.callback import Callback, Run


@dataclass
class EarlyStopping(Callback):
    """End a run after ``patience`` evaluations in a row whose ``metric`` is not above the best before by ``gain``.

    ``accuracy`` and ``loss`` are those on the test set, ``proxy_loss`` on the server's samples.  Better is higher for
    the accuracy and lower for losses.  A run that goes on counts its earlier rounds as well.
    """

    patience: int = 10
    gain: float = 0.0
    metric: Literal["accuracy", "loss", "proxy_loss"] = "accuracy"
    _state: dict[Path | None, tuple[float, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise UserError(f"patience = {self.patience} must be 1 or more")

    def on_start(self, run: Run) -> None:
        self._state[run.path] = (-math.inf, 0)
        if run.path is not None and run.done:
            for record in RunRecord.read(run.path).rounds[: run.done]:
                self._hear(run.path, record)

    def on_round(self, run: Run, record: RoundRecord) -> bool:
        self._hear(run.path, record)
        return self._state[run.path][1] >= self.patience

    def _hear(self, path: Path | None, record: RoundRecord) -> None:
        """The best value so far, and how many evaluations have passed since."""
        value: float | None = getattr(record, self.metric)
        if record.accuracy is None or value is None:
            return
        best, since = self._state[path]
        value = value if self.metric == "accuracy" else -value
        self._state[path] = (value, 0) if value > best + self.gain else (best, since + 1)
