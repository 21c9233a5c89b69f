"""What every rule shares: screening first, then its formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from smartfl.attackers import count_attackers
from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.products import arithmetic
from smartfl.screening import screened
from smartfl.types import Aggregate, NeedsProxy, Server, Updates


class Aggregator(ABC):
    """A rule: ``aggregate`` holds the formula; calling the rule screens the updates first.

    So ``Krum(f=2)(Updates.of(x)).vector`` is safe on any array, and a client that sends NaN gives the same
    result as one that is absent.  Rules are dataclasses; their fields are the settings a TOML file may name.
    """

    needs_proxy: ClassVar[NeedsProxy] = "no"
    widens: ClassVar[bool] = False
    """Whether the rule itself widens rows stored in half precision, by blocks; if not, all are widened before."""

    def __call__(self, updates: Updates, server: Server | None = None) -> Aggregate:
        if not isinstance(updates, Updates):
            raise TypeError(f"{type(self).__name__} takes Updates; Updates.of(x) makes them of an (n, d) array")
        if server is not None and server.model is not None:
            updates = self._laid_out(updates, FlatSpec.of(server.model))
            if self.needs_proxy != "no":
                updates = _as_precise_as(updates, server.model)
        result = screened(self._aggregate_widened, updates, server)
        if result.vector.dtype != updates.origin.dtype:  # rows in half precision: the model is not
            result = replace(result, vector=result.vector.to(updates.origin.dtype))
        updates.spec.clamp_variances_(result.vector)
        return result

    def _laid_out(self, updates: Updates, spec: FlatSpec) -> Updates:
        """``updates`` of a plain array (``Updates.of(x)``) laid out as the server's model is; others unchanged."""
        if updates.spec != FlatSpec.plain(updates.spec.size):
            return updates
        if updates.spec.size == spec.size:
            return replace(updates, spec=spec)
        if self.needs_proxy == "no":
            return updates
        raise UserError(
            f"rows of {updates.spec.size} values do not fit the server's model, which has {spec.size} "
            "(FlatSpec.of(model): parameters that train, then float buffers)"
        )

    def _aggregate_widened(self, updates: Updates, server: Server | None) -> Aggregate:
        if not self.widens and updates.matrix.dtype != (wide := arithmetic(updates.matrix.dtype)):
            updates = updates.with_matrix(updates.matrix.to(wide))
        return self.aggregate(updates, server)

    @abstractmethod
    def aggregate(self, updates: Updates, server: Server | None) -> Aggregate:
        """The rule itself, on screened updates with at least one row."""

    def tolerates(self, n: int) -> int | None:
        """How many bad rows of ``n`` the rule is valid for; None where no number is known."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """What the rule carries from round to round: tensors and JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the state again."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")


def _as_precise_as(updates: Updates, model: nn.Module) -> Updates:
    """``updates`` in the type that the model computes in; half precision stays (rules widen it as they go)."""
    precise = next((p.dtype for p in model.parameters() if p.is_floating_point()), updates.origin.dtype)
    if updates.origin.dtype == precise or updates.matrix.dtype != updates.origin.dtype:
        return updates
    return replace(updates, matrix=updates.matrix.to(precise), origin=updates.origin.to(precise))


def weighted(updates: Updates, p: Tensor, **info: float) -> Aggregate:
    """The aggregate Σ p_i w_i, buffers mixed with the same weights."""
    p = p.to(torch.float64)
    return Aggregate(updates.mix(p), p, info)


def byzantine_count(
    setting: str, given: int | None, fraction: float | None, updates: Updates, most: int
) -> tuple[int, tuple[str, ...]]:
    """How many attackers to assume among these rows, and an event if that had to be capped.

    An explicit number outside validity is the user's mistake, unless clients are missing this round.  A number derived
    from a fraction of all senders is capped at ``most``, as a random cohort may hold more attackers than the rule can
    bear.  Clients that screening refused are certainly faulty and come off the number.
    """
    n, refused = len(updates), len(updates.dropped or ())
    if given is not None:
        count = max(0, given - refused)
        if count > most:
            if not updates.short:
                raise UserError(f"{setting} = {given} is too large for {n} clients: at most {max(most, 0)}")
            return max(most, 0), (f"{setting} = {given} capped to {max(most, 0)}: {n} clients were left",)
        return count, ()
    count = max(0, count_attackers(fraction or 0.0, updates.senders) - refused)
    if count > most:
        return max(most, 0), (f"{setting} = {count} capped to {max(most, 0)} for {n} clients",)
    return count, ()
