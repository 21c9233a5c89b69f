"""Checkpoints: everything comes back, damage is noticed, old ones go."""

from __future__ import annotations

import json

import pytest
import torch

from smartfl.errors import UserError
from smartfl.runs.checkpoint import load_checkpoint, save_checkpoint, saved_checkpoints
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
    save_checkpoint(tmp_path / "checkpoints", state(), "mine")
    found = load_checkpoint(tmp_path / "checkpoints", "mine")
    same(found, state())
    assert found.own.keys() == {4, 11}
    assert found.rules[0]["count"] == 3


def test_an_empty_state_comes_back(tmp_path):
    save_checkpoint(tmp_path, State(1, [torch.zeros(2)], [[]], torch.zeros(0), rules=[{}]), "mine")
    assert load_checkpoint(tmp_path, "mine").shared.numel() == 0


def test_the_last_two_are_kept(tmp_path):
    for round in (1, 2, 9, 10):
        save_checkpoint(tmp_path, state(round), "mine")
    names = ["round-000009.json", "round-000009.safetensors", "round-000010.json", "round-000010.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert load_checkpoint(tmp_path, "mine").round == 10


JSON_DAMAGE = {
    "json cut": lambda text: text[:20],
    "json empty": lambda text: "",
    "json other": lambda text: "[1, 2]",
    "json deep": lambda text: "[" * 100_000,
    "a renamed key": lambda text: text.replace('"integers"', '"integerz"'),
    "another round": lambda text: text.replace('"round": 2', '"round": 1'),
    "another number": lambda text: text.replace('"count": 3', '"count": 4'),
}


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", *JSON_DAMAGE])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    save_checkpoint(tmp_path, state(1), "mine")
    save_checkpoint(tmp_path, state(2), "mine")
    tensors, scalars = tmp_path / "round-000002.safetensors", tmp_path / "round-000002.json"
    content = tensors.read_bytes()
    if damage == "truncated":
        tensors.write_bytes(content[:-5])
    elif damage == "flipped":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "missing":
        tensors.unlink()
    else:
        changed = JSON_DAMAGE[damage](scalars.read_text())
        assert changed != scalars.read_text()
        scalars.write_text(changed)
    same(load_checkpoint(tmp_path, "mine"), state(1))


def test_with_nothing_whole_there_is_nothing(tmp_path):
    assert load_checkpoint(tmp_path / "absent") is None
    save_checkpoint(tmp_path, state(1), "mine")
    (tmp_path / "round-000001.json").write_text(json.dumps({"round": 1}))
    assert load_checkpoint(tmp_path, "mine") is None


def test_a_checkpoint_of_another_experiment_does_not_count(tmp_path, caplog):
    save_checkpoint(tmp_path, state(1), "mine")
    save_checkpoint(tmp_path, state(2), "another")
    same(load_checkpoint(tmp_path, "mine"), state(1))
    assert "round-000002.json' does not count: it is of another experiment" in caplog.text
    assert load_checkpoint(tmp_path).round == 2


def test_a_checkpoint_under_the_name_of_another_round_does_not_count(tmp_path):
    save_checkpoint(tmp_path, state(1), "mine")
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"round-000001{suffix}").rename(tmp_path / f"round-000005{suffix}")
    assert load_checkpoint(tmp_path, "mine") is None


def test_a_checkpoint_from_before_there_were_owners_counts(tmp_path):
    """Its JSON has a checksum of the tensors and neither an owner nor a checksum of its own."""
    save_checkpoint(tmp_path, state(1), "mine")
    file = tmp_path / "round-000001.json"
    found = json.loads(file.read_text())
    old = state(1).scalars() | {"sha256": found["tensors"]}
    file.write_text(json.dumps(old))
    same(load_checkpoint(tmp_path, "mine"), state(1))
    file.write_text(json.dumps({key: value for key, value in old.items() if key != "integers"}))
    assert load_checkpoint(tmp_path, "mine") is None


def test_what_a_kill_left_half_written_goes_with_the_next_checkpoints(tmp_path):
    (tmp_path / ".round-000001.json.part").write_text("half")
    (tmp_path / "round-000001.safetensors").write_text("without its JSON")
    (tmp_path / "round-table.txt").write_text("not ours")
    for round in (2, 3):
        save_checkpoint(tmp_path, state(round), "mine")
    stems = ("round-000002", "round-000003")
    assert {p.name for p in tmp_path.iterdir()} == {
        "round-table.txt",
        *(stem + suffix for stem in stems for suffix in (".json", ".safetensors")),
    }


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    save_checkpoint(tmp_path, state(1), "mine")
    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    for read in (saved_checkpoints, load_checkpoint):
        with pytest.raises(UserError, match=r"the checkpoints in '.*' cannot be read: Permission denied"):
            read(tmp_path)
