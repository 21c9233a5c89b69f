"""A real MLflow server in a process of its own keeps what was logged."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from smartfl.runs.execute import execute
from smartfl.tracking.callback import Callback
from smartfl.tracking.mlflow import MLflow

HAS_MLFLOW = importlib.util.find_spec("mlflow") is not None and importlib.util.find_spec("uvicorn") is not None
pytestmark = pytest.mark.skipif(not HAS_MLFLOW, reason="not installed: pip install 'smartfl[tracking]'")


@pytest.fixture
def server(tmp_path):
    """Its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        [*command, "--backend-store-uri", store, "--artifacts-destination", str(tmp_path / "artifacts")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 240
    try:
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Breaking(Callback):
    def on_round(self, run, record):
        if record.round == 2:
            raise KeyboardInterrupt


def test_settings_rounds_and_result_are_on_the_server(server, tiny, tmp_path):
    """Broken off after round 2 of 3, then gone on with under the same id."""
    from mlflow.tracking import MlflowClient

    client, path = MlflowClient(server), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(tiny(rounds=3), path, executor="serial", callbacks=[MLflow(uri=server), Breaking()])
    group = client.get_experiment_by_name("smartfl").experiment_id
    (run,) = client.search_runs([group])
    assert run.info.status == "KILLED"
    result = execute(tiny(rounds=3), path, executor="serial", resume=True, callbacks=[MLflow(uri=server)])
    (again,) = client.search_runs([group])
    assert (again.info.run_id, again.info.status, again.info.run_name) == (run.info.run_id, "FINISHED", "run")
    assert again.data.params["aggregator.name"] == "fedavg"
    assert again.data.params["data.clients"] == "8"
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [metric.step for metric in history] == [1, 2, 3]
    assert again.data.metrics["result/final"] == pytest.approx(result.final)
