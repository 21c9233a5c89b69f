"""Runs as TensorBoard shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smartfl.errors import UserError
from smartfl.experiment.files import write_experiment
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.tracking.callback import Callback, Run
from smartfl.tracking.scalars import scalars


@dataclass
class TensorBoard(Callback):
    """Write every number of every round to ``<to>/<run>``; ``tensorboard --logdir tensorboard`` shows them.

    Where a run goes on, rounds that are run again replace those of before.  Needs the extra ``tracking``.
    """

    to: str = "tensorboard"
    _writers: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def on_start(self, run: Run) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError('the callback tensorboard needs TensorBoard: pip install "smartfl[tracking]"') from error
        writer: Any = SummaryWriter(str(Path(self.to) / run.name), purge_step=run.done + 1 if run.done else None)
        if not run.done:
            writer.add_text("experiment", f"```\n{write_experiment(run.experiment)}```")
        self._writers[run.name] = writer

    def on_round(self, run: Run, record: RoundRecord) -> None:
        for key, value in scalars(record).items():
            self._writers[run.name].add_scalar(key, value, record.round)

    def on_end(self, run: Run, result: Result | None) -> None:
        if (writer := self._writers.pop(run.name, None)) is not None:
            writer.close()
