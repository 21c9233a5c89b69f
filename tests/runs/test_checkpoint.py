"""Checkpoints: everything comes back, damage is noticed, old ones go."""

from __future__ import annotations

import json

import pytest
import torch

from smartfl.runs.checkpoint import load_checkpoint, save_checkpoint
from smartfl.state import State


def state(round=3):
    after = torch.arange(6.0).view(2, 3)
    return State(
        round=round,
        vectors=[torch.randn(4, generator=torch.Generator().manual_seed(round)), torch.ones(2)],
        integers=[[7, 8], []],
        shared=torch.tensor([1.0, 2.0, 3.0]),
        own={11: after[0], 4: after[1]},  # views of one tensor, as the simulation has them
        rules=[{"velocity": torch.ones(4, dtype=torch.float64), "count": 3}, {}],
        attack={"last": 0.5, "direction": torch.zeros(4)},
    )


def same(a, b):
    assert a.scalars() == b.scalars()
    assert a.tensors().keys() == b.tensors().keys()
    for name, tensor in a.tensors().items():
        assert tensor.dtype == b.tensors()[name].dtype
        assert torch.equal(tensor, b.tensors()[name])


def test_everything_comes_back(tmp_path):
    save_checkpoint(tmp_path / "checkpoints", state())
    found = load_checkpoint(tmp_path / "checkpoints")
    same(found, state())
    assert found.own.keys() == {4, 11}
    assert found.rules[0]["count"] == 3


def test_an_empty_state_comes_back(tmp_path):
    save_checkpoint(tmp_path, State(1, [torch.zeros(2)], [[]], torch.zeros(0), rules=[{}]))
    assert load_checkpoint(tmp_path).shared.numel() == 0


def test_the_last_two_are_kept(tmp_path):
    for round in (1, 2, 9, 10):
        save_checkpoint(tmp_path, state(round))
    names = ["round-000009.json", "round-000009.safetensors", "round-000010.json", "round-000010.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert load_checkpoint(tmp_path).round == 10


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "json cut", "json empty", "json other"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    save_checkpoint(tmp_path, state(1))
    save_checkpoint(tmp_path, state(2))
    tensors, scalars = tmp_path / "round-000002.safetensors", tmp_path / "round-000002.json"
    content = tensors.read_bytes()
    if damage == "truncated":
        tensors.write_bytes(content[:-5])
    elif damage == "flipped":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "missing":
        tensors.unlink()
    else:
        scalars.write_text({"json cut": scalars.read_text()[:20], "json empty": "", "json other": "[1, 2]"}[damage])
    same(load_checkpoint(tmp_path), state(1))


def test_with_nothing_whole_there_is_nothing(tmp_path):
    assert load_checkpoint(tmp_path / "absent") is None
    save_checkpoint(tmp_path, state(1))
    (tmp_path / "round-000001.json").write_text(json.dumps({"round": 1}))
    assert load_checkpoint(tmp_path) is None
