"""A dataset in memory: inputs that turn an index into a batch ready for the model, and labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor


class Inputs(Protocol):
    """N samples kept as compactly as they come; ``inputs[index]`` is a float32 batch for the model."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor) -> Tensor: ...

    def take(self, index: Tensor) -> Self:
        """The samples at ``index``, still compact (what a client owns)."""
        ...

    def share_memory_(self) -> Self:
        """Move the storage to shared memory, so that workers map it instead of copying."""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """Samples as one array (N, …): uint8 pixels or floats; (x/255 − mean)/std per channel on the way out.

    ``mean`` and ``std`` have one entry per channel (dimension 1) and refer to pixels scaled to [0, 1]; without
    them uint8 is only scaled and floats pass as they are.
    """

    values: Tensor
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[1:])

    @property
    def highest(self) -> float:
        """The brightest raw value: what a backdoor trigger paints with."""
        return 255.0 if self.values.dtype == torch.uint8 else float(self.values.max())

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Tensor) -> Tensor:
        # One copy a sample; ``values[index]`` goes number by number and takes ten times as long.
        return self.normalise(self.values.index_select(0, index))

    def normalise(self, raw: Tensor) -> Tensor:
        """Raw values (b, …) as the model sees them."""
        batch = raw.to(torch.float32)
        scale = 1 / 255 if raw.dtype == torch.uint8 else 1.0
        if self.mean is None or self.std is None:
            return batch * scale if scale != 1.0 else batch
        ones = [1] * (raw.ndim - 2)
        std = torch.tensor(self.std, device=raw.device).view(-1, *ones)
        mean = torch.tensor(self.mean, device=raw.device).view(-1, *ones)
        return torch.addcmul(-mean / std, batch, scale / std)

    def take(self, index: Tensor) -> Dense:
        return replace(self, values=self.values.index_select(0, index))

    def share_memory_(self) -> Dense:
        self.values.share_memory_()
        return self


@dataclass(frozen=True, eq=False)
class Sparse:
    """Samples as rows of a CSR matrix (N, V): a batch becomes dense only when it is used.

    ``starts`` (N + 1,) int64, ``columns`` int32 and ``values`` float32 as in scipy's indptr, indices, data.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _entries(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Lengths of the rows at ``index`` and the positions of all their entries, row after row."""
        first, lengths = self.starts[index], self.starts[index + 1] - self.starts[index]
        offsets = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return lengths, first.repeat_interleave(lengths) + offsets

    def __getitem__(self, index: Tensor) -> Tensor:
        lengths, entries = self._entries(index)
        rows = torch.arange(len(index)).repeat_interleave(lengths)
        batch = torch.zeros(len(index), self.width)
        batch[rows, self.columns[entries].to(torch.int64)] = self.values[entries]
        return batch

    def take(self, index: Tensor) -> Sparse:
        lengths, entries = self._entries(index)
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return replace(self, starts=starts, columns=self.columns[entries], values=self.values[entries])

    def share_memory_(self) -> Sparse:
        for tensor in (self.starts, self.columns, self.values):
            tensor.share_memory_()
        return self


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set with integer labels 0 … num_classes − 1."""

    name: str
    train: Inputs
    train_labels: Tensor
    test: Inputs
    test_labels: Tensor
    num_classes: int

    def __post_init__(self) -> None:
        for part, labels in (("train", self.train_labels), ("test", self.test_labels)):
            if len(getattr(self, part)) != len(labels):
                raise ValueError(f"{self.name}: {len(getattr(self, part))} {part} samples, {len(labels)} labels")
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_classes:
                raise ValueError(f"{self.name}: {part} labels must lie in 0 … {self.num_classes - 1}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.train.shape

    def share_memory_(self) -> Dataset:
        self.train.share_memory_()
        self.test.share_memory_()
        self.train_labels.share_memory_()
        self.test_labels.share_memory_()
        return self
