"""A folder of images by class."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smartfl.data.bounds import check_bytes, check_regular
from smartfl.data.dataset import Dataset, Dense
from smartfl.data.split import stratified_split
from smartfl.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow knows many more, some of which run programs
MOST_PIXELS = 1 << 26
MOST_EDGE = 4096


def image_folder(path: str, size: int = 32, channels: int = 3) -> Dataset:
    """Images in path/train/<class>/ and path/test/<class>/ as (channels, size, size) uint8.

    Classes are the sorted directory names under train. Without a test folder, or with the class directories right
    under ``path``, a fixed fifth of every class is the test part. ``channels`` is 1 (grey) or 3 (RGB); images are
    resized without keeping their aspect. Needs Pillow.
    """
    if channels not in (1, 3):
        raise UserError(f"channels = {channels} is not accepted: 1 (grey) or 3 (RGB)")
    if not 1 <= size <= MOST_EDGE:
        raise UserError(f"size = {size} is not accepted: the edge in pixels is 1 … {MOST_EDGE}")
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"path = '{path}' is not a folder; one with train/<class>/ or <class>/ is accepted")
    source = root / "train" if (root / "train").is_dir() else root
    classes = [folder.name for folder in _visible(source) if folder.is_dir()]
    if len(classes) < 2:
        raise UserError(f"path = '{path}': '{source}' has {len(classes)} class folders; two and more are accepted")
    values, labels = _load(path, source, classes, size, channels)
    if source != root and (root / "test").is_dir():
        test_values, test_labels = _load(path, root / "test", classes, size, channels)
    else:
        train, test = (torch.from_numpy(index) for index in stratified_split(labels.numpy(), "path"))
        test_values, test_labels, values, labels = values[test], labels[test], values[train], labels[train]
    return Dataset(root.name, Dense(values), labels, Dense(test_values), test_labels, len(classes))


def _visible(folder: Path) -> list[Path]:
    """What lies in a folder, in an order that is the same on every machine."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _load(path: str, source: Path, classes: list[str], size: int, channels: int) -> tuple[Tensor, Tensor]:
    """Pixels (N, channels, size, size) uint8 and labels (N,) of the class folders under ``source``."""
    unknown = [folder.name for folder in _visible(source) if folder.is_dir() and folder.name not in classes]
    if unknown:
        raise UserError(f"path = '{path}': class '{unknown[0]}' is in '{source}' but not among the training classes")
    files: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        folder = source / name
        images = [file for file in _visible(folder) if file.suffix.lower() in SUFFIXES] if folder.is_dir() else []
        if not images:
            raise UserError(f"path = '{path}': '{folder}' has no image; accepted: {' '.join(sorted(SUFFIXES))}")
        files += [(file, label) for file in images]
    check_bytes(2 * len(files) * channels * size * size, f"path = '{path}'")
    values = torch.empty(len(files), channels, size, size, dtype=torch.uint8)
    for i, (file, _) in enumerate(files):
        values[i] = _pixels(path, file, size, channels)
    return values, torch.tensor([label for _, label in files])


def _pixels(path: str, file: Path, size: int, channels: int) -> Tensor:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UserError("dataset 'image_folder' needs Pillow: pip install 'smartfl[report]'") from error
    try:
        check_regular(file, f"path = '{path}': image '{file}'")
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(file, formats=FORMATS) as opened,
        ):
            if opened.width * opened.height > MOST_PIXELS:
                raise ValueError(f"{opened.width} × {opened.height} pixels, at most {MOST_PIXELS} are accepted")
            # Cameras store the rotation beside the pixels.
            upright = _in_bytes(ImageOps.exif_transpose(opened)).convert("L" if channels == 1 else "RGB")
            resized = upright.resize((size, size), Image.Resampling.BILINEAR)
    except UserError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"path = '{path}': image '{file}' cannot be read ({error})") from error
    return torch.from_numpy(np.array(resized)).reshape(size, size, channels).permute(2, 0, 1)


def _in_bytes(image: Image) -> Image:
    """Grey levels of 16 bits as 8: Pillow's own conversion takes all above 255 for white."""
    from PIL.Image import fromarray

    if image.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits have no known range; dataset = 'arrays' takes them as they are")
    return fromarray((np.asarray(image) // 257).astype(np.uint8)) if image.mode.startswith("I;16") else image
