"""Class histograms of a partition, in numbers, as PNG and as HTML."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from smartfl.data.statistics import describe, draw, histogram, page, show
from smartfl.errors import UserError

LABELS = torch.tensor([0, 0, 1, 2, 2, 2])
PARTS = [torch.tensor([0, 1, 2]), torch.tensor([], dtype=torch.int64), torch.tensor([3, 4, 5])]
COUNTS = np.array([[2, 1, 0, 0], [0, 0, 0, 0], [0, 0, 3, 0]])


def test_histogram_counts_classes_per_client() -> None:
    """Client 0 holds labels 0, 0, 1; client 1 nothing; client 2 three times 2. Class 3 occurs nowhere."""
    for parts in (PARTS, [p.numpy() for p in PARTS], [p.tolist() for p in PARTS]):
        np.testing.assert_array_equal(histogram(LABELS, parts, 4), COUNTS)
    assert histogram(LABELS, [], 4).shape == (0, 4)


def test_describe_by_hand() -> None:
    """Sizes 3, 0, 3; classes per non-empty client (2 + 1)/2; largest shares (2/3 + 1)/2 = 5/6."""
    found = describe(COUNTS)
    assert (found.clients, found.classes, found.samples) == (3, 4, 6)
    assert (found.size_min, found.size_mean, found.size_max) == (0, 2.0, 3)
    assert found.empty == (1,)
    assert found.classes_mean == 1.5
    assert found.largest_share_mean == pytest.approx(5 / 6)


@pytest.mark.parametrize("counts", [np.zeros((0, 4), int), np.zeros((2, 4), int)])
def test_nothing_at_all_is_described_too(counts: np.ndarray) -> None:
    found = describe(counts)
    assert (found.samples, found.size_max, found.classes_mean) == (0, 0, 0.0)
    assert len(found.empty) == len(counts)
    assert page(counts)


def test_a_png_is_drawn(tmp_path: Path) -> None:
    """More samples are darker: the picture of one full and one empty client has both colours."""
    draw(COUNTS, tmp_path / "h.png", "three clients")
    with Image.open(tmp_path / "h.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 10


def test_a_page_stands_alone_and_escapes() -> None:
    text = page(COUNTS, "<b>a & b</b>")
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in text
    assert "<b>" not in text
    assert "http" not in text
    assert text.count("<tr class=e>") == 1
    assert ">3</td>" in text


def test_show_prints_and_writes(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    out = [tmp_path / "sub/h.png", tmp_path / "sub/h.html"]
    assert show(COUNTS, "toy", out, console) == out
    assert all(path.stat().st_size > 500 for path in out)
    printed = console.file.getvalue()
    assert "min 0, mean 2.0, max 3" in printed
    assert "1 (1)" in printed


def test_other_endings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"h\.pdf.*\.png or \.html"):
        show(COUNTS, "toy", [tmp_path / "h.html", tmp_path / "h.pdf"], Console(file=io.StringIO()))
    assert list(tmp_path.iterdir()) == []
