"""Experiments that ship with the package."""

from __future__ import annotations

from importlib.resources import files


def preset_names() -> list[str]:
    """The names of the shipped experiment files, sorted."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")
    )
