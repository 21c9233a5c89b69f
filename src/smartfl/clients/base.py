"""What a client algorithm may change about local training."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from smartfl.optimizers import ClientOptimizer


class ClientAlgorithm:
    """Hooks around every optimiser step, on flat vectors of the trainable parameters.

    All hooks do nothing here, which is plain local training.  An algorithm is a dataclass that overrides some of
    them; it knows nothing of the aggregator, so every pair combines.
    """

    # ``before_step`` and ``after_step`` also take (k, P), the parameters of k clients that began at the same model
    stackable: ClassVar[bool] = False
    # The server keeps a state of the same size as a client's, which ``merge`` moves on
    shares: ClassVar[bool] = False

    def state_size(self, num_parameters: int, optimizer: ClientOptimizer) -> int:
        """S, how many numbers a client keeps from one of its rounds to the next: vectors (P,), then single numbers."""
        return 0

    def begin(self, start: Tensor, optimizer: ClientOptimizer, shared: Tensor | None, own: Tensor | None) -> None:
        """A round begins at ``start`` (P,) with a new ``optimizer``.

        ``own`` (S,) is this client's state, zeros at first, and none if S is 0; ``shared`` (S,) the server's, if any.
        """

    def before_step(self, w: Tensor, gradient: Tensor) -> None:
        """Change the gradient (P,) in place before the optimiser sees it."""

    def after_step(self, w: Tensor) -> None:
        """Change the parameters (P,) in place after the optimiser's step."""

    def finish(self, w: Tensor, steps: int) -> Tensor | None:
        """The client's new own state (S,) after ``steps`` optimiser steps."""
        return None

    def merge(self, shared: Tensor, before: Tensor, after: Tensor, num_clients: int) -> Tensor:
        """The server's new state from the participants' own states before and after, (m, S) each."""
        return shared
