"""TensorBoard's own reader reads what was written."""

from __future__ import annotations

import importlib.util

import pytest

from smartfl.runs.execute import execute
from smartfl.tracking.callback import Callback
from smartfl.tracking.tensorboard import TensorBoard

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
pytestmark = pytest.mark.skipif(not HAS_TENSORBOARD, reason="not installed: pip install 'smartfl[tracking]'")


class Breaking(Callback):
    def on_round(self, run, record):
        if record.round == 2:
            raise KeyboardInterrupt


def test_every_number_of_every_round(tiny, tmp_path):
    """Broken off after round 2 of 3 and gone on with: three rounds, each once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    experiment, path = tiny(rounds=3, attack={"name": "label_flip", "rate": 0.25}), tmp_path / "run"
    board = TensorBoard(to=str(tmp_path / "board"))
    with pytest.raises(KeyboardInterrupt):
        execute(experiment, path, executor="serial", callbacks=[board, Breaking()])
    result = execute(experiment, path, executor="serial", resume=True, callbacks=[board])
    found = EventAccumulator(str(tmp_path / "board" / "run")).Reload()
    accuracies = found.Scalars("accuracy")
    assert [event.step for event in accuracies] == [1, 2, 3]
    assert accuracies[-1].value == pytest.approx(result.final)
    assert {"loss", "malicious_mass", "seconds/train", "info/effective_clients"} <= set(found.Tags()["scalars"])
    (text,) = found.Tensors("experiment/text_summary")
    assert b'name = "label_flip"' in text.tensor_proto.string_val[0]
