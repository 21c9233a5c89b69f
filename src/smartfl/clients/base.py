"""What a client algorithm may change about local training."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor


class ClientAlgorithm:
    """Hooks around every optimiser step, on flat vectors of the trainable parameters.

    All hooks do nothing here, which is plain local training.  An algorithm is a dataclass that overrides some of
    them; it knows nothing of the aggregator, so every pair combines.
    """

    keeps_state: ClassVar[bool] = False
    # ``before_step`` and ``after_step`` also take (k, P), the parameters of k clients that began at the same model
    stackable: ClassVar[bool] = False

    def begin(self, start: Tensor, lr: float, shared: Tensor | None, own: Tensor | None) -> None:
        """A round begins at ``start`` (P,); ``shared`` (P,) is the server's state, ``own`` (P,) this client's."""

    def before_step(self, w: Tensor, gradient: Tensor) -> None:
        """Change the gradient (P,) in place before the optimiser sees it."""

    def after_step(self, w: Tensor) -> None:
        """Change the parameters (P,) in place after the optimiser's step."""

    def finish(self, w: Tensor, steps: int) -> Tensor | None:
        """The client's new own state (P,) after ``steps`` optimiser steps."""
        return None

    def merge(self, shared: Tensor, before: Tensor, after: Tensor, num_clients: int) -> Tensor:
        """The server's new state from the participants' own states before and after, (m, P) each."""
        return shared
