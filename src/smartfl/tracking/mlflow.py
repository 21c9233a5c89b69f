"""Runs as an MLflow server keeps them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from smartfl.errors import UserError
from smartfl.records.naming import flatten, shown
from smartfl.records.result import Result
from smartfl.records.round import RoundRecord
from smartfl.tracking.callback import Callback, Run
from smartfl.tracking.scalars import scalars

TAG = "smartfl.run"  # by which a run that goes on is found again
MOST = 100  # parameters that a server takes at once
LONGEST = 500  # characters of a parameter that every server takes


@dataclass
class MLflow(Callback):
    """Log settings as parameters, rounds as metrics and the result to an MLflow server.

    ``uri`` is the server's address, by default what MLFLOW_TRACKING_URI says; ``experiment`` is MLflow's own name for
    a group of runs.  A run that goes on is gone on with there.  Needs the extra ``tracking``.
    """

    uri: str | None = None
    experiment: str = "smartfl"
    _client: Any = field(default=None, init=False, repr=False)
    _ids: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def on_start(self, run: Run) -> None:
        try:
            from mlflow.entities import Param
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise UserError('the callback mlflow needs MLflow: pip install "smartfl[tracking]"') from error
        self._client = self._client or MlflowClient(self.uri)
        group = self._group()
        if run.done and (earlier := self._client.search_runs([group], f"tags.`{TAG}` = '{run.name}'")):
            self._ids[run.name] = earlier[0].info.run_id
            self._client.update_run(self._ids[run.name], status="RUNNING")
            return
        made = self._client.create_run(group, tags={TAG: run.name}, run_name=run.name)
        self._ids[run.name] = made.info.run_id
        params = [Param(key, shown(value)[:LONGEST]) for key, value in flatten(run.experiment.tables())]
        for first in range(0, len(params), MOST):
            self._client.log_batch(made.info.run_id, params=params[first : first + MOST])

    def on_round(self, run: Run, record: RoundRecord) -> None:
        self._log(run, scalars(record), record.round)

    def on_end(self, run: Run, result: Result | None) -> None:
        if run.name not in self._ids:
            return
        if result is not None:
            self._log(run, {f"result/{key}": float(value) for key, value in asdict(result).items()}, result.rounds)
        self._client.set_terminated(self._ids.pop(run.name), "KILLED" if result is None else "FINISHED")

    def _group(self) -> str:
        """The id of the experiment, which is made if there is none."""
        found = self._client.get_experiment_by_name(self.experiment)
        return str(self._client.create_experiment(self.experiment) if found is None else found.experiment_id)

    def _log(self, run: Run, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._ids[run.name], [Metric(key, value, now, step) for key, value in values.items()])
