"""The memory that the server and its workers share: models go in and rows come out in place."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

CHUNK = 500  # test samples per evaluation task; fixed, so that sums are the same for any number of workers


@dataclass(frozen=True, eq=False)
class Board:
    """One slot per cohort member.

    origins    (Σ d_g,) the global models of all architecture groups, one after another
    rows       (m · max d,) flat room for the clients' models; a slot starts where the server says
    shared     (S,) the server's state of the client algorithm, empty if it has none
    states     (m, S) the participants' own states, overwritten by their new ones
    integers   (m, k) integer buffers of the trained models
    correct    (chunks,) and losses (chunks,): sums over each chunk of the test set
    """

    origins: Tensor
    rows: Tensor
    shared: Tensor
    states: Tensor
    integers: Tensor
    correct: Tensor
    losses: Tensor

    @classmethod
    def of(
        cls, cohort: int, sizes: list[int], state_size: int, shared_size: int, integers: int, test_samples: int
    ) -> Board:
        chunks = -(-test_samples // CHUNK)
        return cls(
            origins=torch.zeros(sum(sizes)),
            rows=torch.zeros(cohort * max(sizes)),
            shared=torch.zeros(shared_size),
            states=torch.zeros(cohort, state_size),
            integers=torch.zeros(cohort, integers, dtype=torch.int64),
            correct=torch.zeros(chunks, dtype=torch.int64),
            losses=torch.zeros(chunks, dtype=torch.float64),
        )

    def share_memory_(self) -> Board:
        for f in fields(self):
            getattr(self, f.name).share_memory_()
        return self
