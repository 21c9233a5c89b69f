"""Devices that torch can use here."""

from __future__ import annotations

import torch

from smartfl.errors import UserError


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use here."""
    available = ["cpu"]
    if torch.cuda.is_available():
        available.append("cuda")
    if torch.backends.mps.is_available():
        available.append("mps")
    try:
        known = torch.device(device).type in available
    except RuntimeError:
        known = False
    if not known:
        raise UserError(f"--device = {device!r} is not available here; accepted: {', '.join(available)}")
