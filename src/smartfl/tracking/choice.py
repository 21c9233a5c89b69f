"""Callbacks by name, for the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from smartfl.errors import UserError
from smartfl.registry import build
from smartfl.tracking.callback import Callback


def read_callbacks(texts: Sequence[str]) -> list[Callback]:
    """From ``tensorboard``, ``early_stopping,patience=5`` or ``my_module:MyCallback``, the callbacks."""
    return [_read(text) for text in texts]


def _read(text: str) -> Callback:
    name, *pairs = (part.strip() for part in text.split(","))
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--callback takes NAME,KEY=VALUE,…, for example early_stopping,patience=5, got '{text}'")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {value.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = value.strip()  # a bare word
    found = build("callbacks", name, settings, "--callback", key="--callback")
    if not isinstance(found, Callback):
        raise UserError(f"--callback = '{name}' must make a smartfl.tracking.callback.Callback")
    return found
