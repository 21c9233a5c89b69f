"""What the wrappers share: they change the rows or the result and leave everything else to the rule inside."""

from __future__ import annotations

from typing import Any

from smartfl.aggregators.base import Aggregator
from smartfl.types import NeedsProxy, Rule


class Wrapper(Aggregator):
    """A rule around ``rule``, whose needs, tolerance and state are its own unless it says otherwise."""

    rule: Aggregator

    @property
    def needs_proxy(self) -> NeedsProxy:  # type: ignore[override]
        return self.rule.needs_proxy

    @property
    def cohort_weights(self) -> Any:
        """The rule's wish for the cohort, if it has one; ``hasattr`` is false where it has none."""
        return self.rule.cohort_weights  # type: ignore[attr-defined]

    def tolerates(self, n: int) -> int | None:
        return self.rule.tolerates(n)

    def state_dict(self) -> dict[str, Any]:
        return self.rule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rule.load_state_dict(state)


def innermost(rule: Rule) -> Rule:
    """The rule that is in no wrapper any more: itself, where it is none."""
    while isinstance(inner := getattr(rule, "rule", None), Rule):
        rule = inner
    return rule
