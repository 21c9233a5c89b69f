"""Flower stays offline and quiet."""

from __future__ import annotations

import logging
import os

import torch

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
torch.set_num_threads(1)
import flwr.app  # noqa: E402, F401  (it sets the level of its log)

logging.getLogger("flwr").setLevel(logging.ERROR)
