"""Crop and flip on raw pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smartfl.data.augment import _gather_windows, crop_and_flip


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(b: int, channels: int = 3, height: int = 8, width: int = 6) -> torch.Tensor:
    return torch.randint(1, 256, (b, channels, height, width), generator=stream(7), dtype=torch.uint8)


@pytest.mark.parametrize("shape", [(40, 3, 8, 6), (40, 1, 28, 28)])
def test_every_output_is_a_window_of_the_padded_picture(shape: tuple[int, ...]) -> None:
    """Independent oracle: each result equals one of the 81 windows of the zero-padded input, or its mirror image."""
    raw = pictures(*shape)
    out = crop_and_flip(raw, stream())
    assert out.shape == raw.shape
    assert out.dtype == torch.uint8
    _, _, height, width = shape
    seen = set()
    for before, after in zip(raw.numpy(), out.numpy(), strict=True):
        padded = np.pad(before, ((0, 0), (4, 4), (4, 4)))
        hits = [
            (y, x, flip)
            for y in range(9)
            for x in range(9)
            for flip in (False, True)
            if np.array_equal(padded[:, y : y + height, x : x + width][:, :, :: -1 if flip else 1], after)
        ]
        assert len(hits) == 1
        seen.update(hits)
    assert len(seen) > 20  # samples draw for themselves
    assert {flip for _, _, flip in seen} == {False, True}


def test_offsets_and_flips_are_uniform() -> None:
    """A single bright pixel shows where each window lay: 9 × 9 offsets, 8100 samples, 100 expected at each place.

    The pixel sits in the middle of 9 × 9, so no draw loses it; a place off by 6σ (√100 = 10) is no accident.
    """
    raw = torch.zeros(8100, 1, 9, 9, dtype=torch.uint8)
    raw[:, 0, 4, 4] = 255
    out = crop_and_flip(raw, stream(1))
    place = out.flatten(1).argmax(1)
    counts = np.bincount(place.numpy(), minlength=81)
    assert out.flatten(1).max(1).values.min() == 255
    assert abs(counts - 100).max() < 60


def test_the_generator_decides() -> None:
    raw = pictures(16)
    torch.testing.assert_close(crop_and_flip(raw, stream(3)), crop_and_flip(raw, stream(3)))
    assert not torch.equal(crop_and_flip(raw, stream(3)), crop_and_flip(raw, stream(4)))
    before = torch.random.get_rng_state()
    crop_and_flip(raw, stream(3))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_input_stays_as_it_is() -> None:
    raw = pictures(5)
    kept = raw.clone()
    crop_and_flip(raw, stream())
    assert torch.equal(raw, kept)


def test_both_ways_of_cutting_agree() -> None:
    """The gather that other devices use gives the windows that the CPU copies."""
    raw = pictures(33)
    generator = stream(5)
    down, across = torch.randint(0, 9, (2, 33), generator=generator)
    flip = torch.randint(0, 2, (33,), generator=generator)
    padded = torch.nn.functional.pad(raw, (4, 4, 4, 4))
    gathered = _gather_windows(padded, down, across, flip, 8, 6)
    assert torch.equal(gathered, crop_and_flip(raw, stream(5)))


def test_an_empty_batch_and_floats() -> None:
    assert crop_and_flip(pictures(0), stream()).shape == (0, 3, 8, 6)
    floats = pictures(4).float()
    assert torch.equal(crop_and_flip(floats, stream(2)), crop_and_flip(pictures(4), stream(2)).float())
