"""How many of some clients a rate means: the one place where attackers are counted."""

from __future__ import annotations


def count_attackers(rate: float, clients: int) -> int:
    """The whole number nearest to rate · clients (of two as near, the even one).

    Who is compromised, who lies in a round, and how many a rule assumes are all counted so: with clients of whole
    numbers of attackers all three agree.
    """
    return round(rate * clients)
