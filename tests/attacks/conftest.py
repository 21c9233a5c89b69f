"""What every attack test needs: a seeded attacker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from smartfl.attacks.base import Knowledge


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def knowledge() -> Knowledge:
    return Knowledge(generator=torch.Generator().manual_seed(7))
