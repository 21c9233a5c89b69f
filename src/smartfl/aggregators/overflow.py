"""What happens when a mix of client models overflows: finite rows need not make finite logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from smartfl.aggregators.hull import Hull
from smartfl.aggregators.proxy import finite_clients, global_model_kept
from smartfl.types import Aggregate, Updates

Search = Callable[[Updates, Hull], Aggregate | None]
"""A search over the hull of the client models; None where every model that it could ship overflows."""


def on_finite_clients(search: Search, updates: Updates, hull: Callable[[Updates], Hull]) -> Aggregate:
    """``search`` among all clients; if it finds nothing finite, among those whose own models are finite.

    A row with weights of 1e30 is finite and overflows in the forward pass.  Looking at every client costs n passes, so
    it is done only after the search has failed.  If nobody is left, or the mix of finite models overflows as well, the
    global model is kept, with an event.
    """
    space = hull(updates)
    found = search(updates, space)
    if found is not None:
        return found
    keep, events = finite_clients(updates, space.each_result())
    if keep.all():
        return global_model_kept(updates, "the mix of the clients overflows: the global model is kept")
    if not keep.any():
        return global_model_kept(updates, *events)
    where = torch.nonzero(keep).flatten().cpu()
    others = updates.select(where)
    found = search(others, hull(others))
    if found is None:
        return global_model_kept(updates, *events, "the mix of the other clients overflows: the global model is kept")
    assert found.coefficients is not None
    p = torch.zeros(len(updates), dtype=torch.float64).index_copy(0, where, found.coefficients.cpu())
    return replace(found, coefficients=p, events=events + found.events)
