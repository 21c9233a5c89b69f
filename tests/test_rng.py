"""A tree of streams: fixed numbers, no stream disturbs another, global generators untouched."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from smartfl.rng import numpy_stream, seed_of, seeded, torch_stream


def test_seeds_are_the_first_63_bits_of_blake2b():
    digest = hashlib.blake2b(b"0/client/3/17", digest_size=8).digest()
    assert seed_of(0, "client", 3, 17) == int.from_bytes(digest, "big") // 2


def test_golden_values():
    """Fixed for good: a change here would change every published result."""
    assert seed_of(0, "client", 3, 17) == 6474447856351133372
    assert seed_of(12, "partition") == 3094104071104010220
    assert torch.randperm(8, generator=torch_stream(0, "cohort", 1)).tolist() == [5, 6, 0, 1, 2, 3, 7, 4]
    assert numpy_stream(0, "cohort", 1).permutation(8).tolist() == [0, 7, 6, 5, 4, 3, 2, 1]


def test_paths_do_not_collide():
    paths = [(0, "client", r, c) for r in range(20) for c in range(20)] + [(s, "server", 1) for s in range(20)]
    paths += [(1, "a"), (1, "a", 1), (11, "a"), (1, 1, "a")]
    assert len({seed_of(*p) for p in paths}) == len(paths)
    assert all(0 <= seed_of(*p) < 2**63 for p in paths)


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    first = torch.rand(3, generator=torch_stream(5, "server", 2))
    torch.rand(100, generator=torch_stream(5, "server", 1))
    numpy_stream(5, "server", 2).random(100)
    assert torch.equal(torch.rand(3, generator=torch_stream(5, "server", 2)), first)


def test_streams_are_unrelated():
    a, b = (numpy_stream(0, "client", 1, c).standard_normal(4000) for c in (1, 2))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.06


def test_global_generators_are_untouched():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    torch_stream(0, "x"), numpy_stream(0, "x")
    with seeded(0, "model", 0):
        inside = torch.rand(2)
    assert torch.equal(torch.rand(4), expected)
    with seeded(0, "model", 0):
        assert torch.equal(torch.rand(2), inside)


def test_the_global_generator_is_restored_after_an_exception():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with pytest.raises(RuntimeError, match="stop"), seeded(0, "x"):
        torch.rand(9)
        raise RuntimeError("stop")
    assert torch.equal(torch.rand(4), expected)
