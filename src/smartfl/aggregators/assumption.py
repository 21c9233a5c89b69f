"""The number of attackers that a rule is told to assume: checked when set, and declared afterwards."""

from __future__ import annotations

from smartfl.attackers import count_attackers
from smartfl.errors import UserError


def check_assumption(setting: str, given: int | None, fraction: float | None) -> None:
    """Refuse a negative number and a fraction outside [0, 1] as soon as a rule is built."""
    if given is not None and given < 0:
        raise UserError(f"{setting} = {given} must be 0 or more")
    if fraction is not None and not 0 <= fraction <= 1:
        raise UserError(f"fraction = {fraction:g} must be between 0 and 1")


def assumed(given: int | None, fraction: float | None, n: int, most: int) -> int:
    """How many bad rows of ``n`` a rule with these settings holds against: what it assumes, at most ``most``."""
    count = count_attackers(fraction or 0.0, n) if given is None else given
    return min(count, max(most, 0))
