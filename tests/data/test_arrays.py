"""A user's own arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smartfl.data.arrays import arrays
from smartfl.errors import UserError
from smartfl.registry import build

Y = np.repeat([0, 1, 2], 10)
FLAT = np.arange(120.0).reshape(30, 4)


def saved(folder: Path, **content: Any) -> str:
    path = folder / "mine.npz"
    np.savez(path, **content)
    return str(path)


def test_flat_features_pass_as_they_are(tmp_path: Path) -> None:
    data = arrays(saved(tmp_path, x_train=FLAT, y_train=Y, x_test=FLAT[:6], y_test=Y[:6]))
    assert (data.name, data.shape, data.num_classes, len(data.train), len(data.test)) == ("mine", (4,), 3, 30, 6)
    batch = data.train[torch.tensor([1])]
    assert batch.dtype == torch.float32
    assert batch.tolist() == [[4.0, 5.0, 6.0, 7.0]]
    assert data.train_labels.dtype == torch.int64


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_both_image_layouts_become_channels_first(tmp_path: Path, layout: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 3, 5, 6)).astype(np.uint8)
    stored = pixels if layout == "NCHW" else pixels.transpose(0, 2, 3, 1)
    data = arrays(saved(tmp_path, x_train=stored, y_train=Y, x_test=stored, y_test=Y))
    assert data.shape == (3, 5, 6)
    torch.testing.assert_close(data.train[torch.arange(30)], torch.from_numpy(pixels) / 255)


def test_grey_images_get_a_channel_and_the_scaling(tmp_path: Path) -> None:
    """Pixel 51 is 0.2; (0.2 − 0.1)/0.5 = 0.2."""
    grey = np.full((30, 5, 6), 51, dtype=np.uint8)
    data = arrays(saved(tmp_path, x_train=grey, y_train=Y), mean=(0.1,), std=(0.5,))
    assert data.shape == (1, 5, 6)
    assert data.train[torch.tensor([0])].mean().item() == pytest.approx(0.2, abs=1e-6)


def test_without_test_arrays_a_fixed_fifth_is_set_aside(tmp_path: Path) -> None:
    path = saved(tmp_path, x_train=FLAT, y_train=Y)
    first, second = arrays(path), arrays(path)
    assert torch.bincount(first.test_labels).tolist() == [2, 2, 2]
    test, train = first.test[torch.arange(6)], first.train[torch.arange(24)]
    assert torch.equal(test, second.test[torch.arange(6)])
    assert sorted([*test[:, 0].tolist(), *train[:, 0].tolist()]) == FLAT[:, 0].tolist()


def test_num_classes_may_be_larger_than_the_labels_show(tmp_path: Path) -> None:
    path = saved(tmp_path, x_train=FLAT, y_train=Y[:, None])
    assert arrays(path, num_classes=5).num_classes == 5
    with pytest.raises(UserError, match=r"num_classes = 2 is too small: .* labels up to 2"):
        arrays(path, num_classes=2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"images": FLAT}, r"lacks x_train and y_train \(it has images\)"),
        ({"x_train": FLAT, "y_train": Y, "x_test": FLAT}, "lacks y_test"),
        ({"x_train": FLAT, "y_train": Y[:-1]}, "x_train has 30 samples, y_train 29"),
        ({"x_train": FLAT, "y_train": Y - 1}, "y_train must be"),
        ({"x_train": FLAT, "y_train": Y * 1.0}, "y_train must be"),
        ({"x_train": FLAT[0], "y_train": Y[:4]}, "x_train must be"),
        ({"x_train": np.full((30, 2), "a"), "y_train": Y}, "x_train must be"),
        ({"x_train": np.full((30, 2), np.nan), "y_train": Y}, "not finite"),
        ({"x_train": np.full((30, 2), 1e300), "y_train": Y}, "too large for float32"),
        ({"x_train": FLAT, "y_train": Y, "x_test": FLAT[:, :2], "y_test": Y}, "different shapes"),
        ({"x_train": FLAT[:0], "y_train": Y[:0]}, "x_train has no samples"),
        ({"x_train": FLAT[:2], "y_train": Y[:2]}, "2 samples are too few"),
        ({"x_train": np.array([{"a": 1}] * 30, dtype=object), "y_train": Y}, "without pickles"),
    ],
)
def test_wrong_content_is_one_sentence(tmp_path: Path, content: dict[str, Any], complaint: str) -> None:
    path = saved(tmp_path, **content)
    with pytest.raises(UserError, match=rf"^data\.options\W+path\b.*{complaint}") as caught:
        build("datasets", "arrays", {"path": path}, "data.options")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_npz_are_refused(tmp_path: Path) -> None:
    missing, text, single, folder = (tmp_path / name for name in ("none.npz", "text.npz", "one.npy", "folder"))
    text.write_text("hello")
    np.save(single, FLAT)
    folder.mkdir()
    for path, complaint in (
        (missing, "not a file"),
        (text, "cannot be read"),
        (single, "single array"),
        (folder, "no"),
    ):
        with pytest.raises(UserError, match=rf"^path = '{path}' .*{complaint}"):
            arrays(str(path))
    cut = Path(saved(tmp_path, x_train=FLAT, y_train=Y))
    cut.write_bytes(cut.read_bytes()[:300])
    with pytest.raises(UserError, match="cannot be read"):
        arrays(str(cut))


def test_scaling_is_checked(tmp_path: Path) -> None:
    path = saved(tmp_path, x_train=FLAT, y_train=Y)
    for options, complaint in (
        ({"mean": (0.0,)}, "together"),
        ({"mean": (0.0, 0.0), "std": (1.0,)}, "mean has 2 entries; accepted: 1 or 4"),
        ({"mean": (0.0,), "std": (0.0,)}, "std must be above 0"),
    ):
        with pytest.raises(UserError, match=complaint):
            arrays(path, **options)
