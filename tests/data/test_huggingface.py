"""The bridge to Hugging Face datasets; needs the extra ``hf``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smartfl.data.huggingface import huggingface
from smartfl.errors import UserError


@pytest.fixture
def hf() -> Any:
    return pytest.importorskip("datasets", reason="needs the extra smartfl[hf]")


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape), np.uint8)


def save(hf: Any, path: Path, arrays: dict[str, np.ndarray], labels: dict[str, list[Any]], **features: Any) -> str:
    image = hf.Image()
    splits = {}
    for split, values in arrays.items():
        from PIL import Image

        table = {"image": [Image.fromarray(v) for v in values], "label": labels[split]}
        splits[split] = hf.Dataset.from_dict(table, features=hf.Features({"image": image, **features}))
    hf.DatasetDict(splits).save_to_disk(str(path))
    return str(path)


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_pictures_saved_to_disk(hf: Any, tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Grey pictures become one channel, coloured ones channels first."""
    arrays = {"train": pictures(4, *shape), "test": pictures(2, *shape)}
    labels = {"train": [0, 2, 1, 0], "test": [1, 1]}
    path = save(hf, tmp_path / "d", arrays, labels, label=hf.ClassLabel(names=["a", "b", "c"]))
    data = huggingface(path)
    expected = arrays["train"][:, None] if len(shape) == 2 else arrays["train"].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(data.train.values.numpy(), expected)
    assert data.train.values.dtype == torch.uint8
    assert data.train_labels.tolist() == [0, 2, 1, 0]
    assert data.test_labels.tolist() == [1, 1]
    assert data.num_classes == 3


def test_strings_and_numbers(hf: Any, tmp_path: Path) -> None:
    """Classes in alphabetical order; vectors of numbers as they are."""
    splits = {
        "train": hf.Dataset.from_dict({"x": [[0.5, 1.0], [2.0, 3.0]], "kind": ["pear", "apple"]}),
        "held_out": hf.Dataset.from_dict({"x": [[4.0, 5.0]], "kind": ["pear"]}),
    }
    hf.DatasetDict(splits).save_to_disk(str(tmp_path / "d"))
    data = huggingface(str(tmp_path / "d"), image="x", label="kind", test="held_out")
    assert data.train.values.tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert data.train.values.dtype == torch.float32
    assert data.train_labels.tolist() == [1, 0]
    assert data.test_labels.tolist() == [1]


def test_a_folder_that_load_dataset_understands(hf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.csv").write_text("x,label\n1.5,0\n2.5,1\n")
    (tmp_path / "d/test.csv").write_text("x,label\n3.5,1\n")
    data = huggingface(str(tmp_path / "d"), image="x")
    assert data.train.values.tolist() == [1.5, 2.5]
    assert data.num_classes == 2


def test_wrong_settings_are_named(hf: Any, tmp_path: Path) -> None:
    splits = {s: hf.Dataset.from_dict({"image": [[1.0], [2.0, 3.0]], "label": [0, 1]}) for s in ("train", "test")}
    hf.DatasetDict(splits).save_to_disk(str(tmp_path / "d"))
    path = str(tmp_path / "d")
    with pytest.raises(UserError, match=r"test = 'dev': .* has the splits train, test"):
        huggingface(path, test="dev")
    with pytest.raises(UserError, match=r"image = 'img': .* has the columns image, label"):
        huggingface(path, image="img")
    with pytest.raises(UserError, match="samples must have one shape"):
        huggingface(path)


def test_the_package_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'smartfl\[hf\]'"):
        huggingface("anything")
