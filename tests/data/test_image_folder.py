"""Folders of images by class."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from smartfl.data.image_folder import image_folder
from smartfl.errors import UserError
from smartfl.registry import build

COLOURS = {"blue": (0, 0, 255), "red": (255, 0, 0)}


def paint(root: Path, count: int = 5, edge: int = 8) -> Path:
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (edge + i, edge), colour).save(root / name / f"{i}.png")
    return root


def test_train_and_test_folders(tmp_path: Path) -> None:
    """Sorted names: blue is class 0 with channels (0, 0, 1), red class 1 with (1, 0, 0)."""
    paint(tmp_path / "train")
    paint(tmp_path / "test", count=2)
    (tmp_path / "train" / "red" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".hidden").mkdir()
    data = image_folder(str(tmp_path), size=4)
    assert (data.shape, data.num_classes, len(data.train), len(data.test)) == ((3, 4, 4), 2, 10, 4)
    batch = data.train[torch.arange(10)]
    for label, means in ((0, [0.0, 0.0, 1.0]), (1, [1.0, 0.0, 0.0])):
        assert batch[data.train_labels == label].mean(dim=(0, 2, 3)).tolist() == pytest.approx(means)


def test_classes_right_under_the_folder_are_split(tmp_path: Path) -> None:
    paint(tmp_path)
    first, second = image_folder(str(tmp_path)), image_folder(str(tmp_path))
    assert first.shape == (3, 32, 32)
    assert torch.bincount(first.train_labels).tolist() == [4, 4]
    assert torch.bincount(first.test_labels).tolist() == [1, 1]
    assert torch.equal(first.train[torch.arange(8)], second.train[torch.arange(8)])


def test_grey(tmp_path: Path) -> None:
    """ITU-R 601: grey of pure red is 0.299·255 = 76, of pure blue 0.114·255 = 29."""
    data = image_folder(str(paint(tmp_path)), size=4, channels=1)
    assert data.shape == (1, 4, 4)
    batch = data.train[torch.arange(8)] * 255
    assert batch[data.train_labels == 0].mean().item() == pytest.approx(29, abs=1)
    assert batch[data.train_labels == 1].mean().item() == pytest.approx(76, abs=1)


def test_sixteen_bits_a_grey_level(tmp_path: Path) -> None:
    """65,535 is white: 257 · 40 and 257 · 200 are 40 and 200 of 255."""
    for name, level in (("dark", 40), ("light", 200)):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.fromarray(np.full((8, 8), 257 * level, np.uint16)).save(tmp_path / name / f"{i}.png")
    for channels in (1, 3):
        data = image_folder(str(tmp_path), size=4, channels=channels)
        batch = data.train[torch.arange(8)] * 255
        assert [batch[data.train_labels == k].mean().item() for k in (0, 1)] == pytest.approx([40, 200])


def test_pixels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    paint(tmp_path)
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "red" / "0.tiff")
    with pytest.raises(UserError, match=r"0\.tiff' cannot be read \(pixels of 32 bits"):
        image_folder(str(tmp_path))


def test_a_corrupted_image_is_named(tmp_path: Path) -> None:
    paint(tmp_path)
    bad = tmp_path / "red" / "3.png"
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(UserError, match=rf"^data\.options\W+path\b.*image '{bad}' cannot be read"):
        build("datasets", "image_folder", {"path": str(tmp_path)}, "data.options")


def test_wrong_folders_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^path = '.*none' is not a folder"):
        image_folder(str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"^path = .* has 0 class folders"):
        image_folder(str(tmp_path))
    paint(tmp_path / "train")
    paint(tmp_path / "test")
    (tmp_path / "test" / "green").mkdir()
    with pytest.raises(UserError, match=r"class 'green' is in .* but not among the training classes"):
        image_folder(str(tmp_path))
    (tmp_path / "train" / "green").mkdir()
    with pytest.raises(UserError, match=r"train/green' has no image"):
        image_folder(str(tmp_path))


@pytest.mark.parametrize(("option", "value"), [("channels", 2), ("channels", 4), ("size", 0)])
def test_wrong_options_are_named(tmp_path: Path, option: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"^{option} = {value} is not accepted"):
        image_folder(str(tmp_path), **{option: value})


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(tmp_path)
    real = builtins.__import__

    def without_pillow(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(UserError, match=r"needs Pillow: pip install 'smartfl\[report\]'"):
        image_folder(str(tmp_path))
