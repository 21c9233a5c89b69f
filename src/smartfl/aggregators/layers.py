"""Which columns of a model vector are one layer, or one class."""

from __future__ import annotations

from torch import nn

from smartfl.flat import FlatSpec

FITS_A_SAMPLE = 2.5  # of all layers but one, over all rounds: as many as CIFAR-10 bore (docs/evidence.md)


def layers(spec: FlatSpec, model: nn.Module) -> list[list[slice]]:
    """The columns of every layer of ``model``: of a module that has a matrix (or kernel) among its own parameters.

    Modules that have vectors only, as normalisation has, belong to the layer before them, with their statistics.
    """
    owned: dict[str, list[slice]] = {}
    matrices: set[str] = set()
    for entry in spec.parameters + spec.buffers:
        module = _owner(entry.name)
        owned.setdefault(module, []).append(slice(entry.start, entry.stop))
        if entry in spec.parameters and len(entry.shape) > 1:
            matrices.add(module)
    order = {name: k for k, (name, _) in enumerate(model.named_modules())}
    found: list[list[slice]] = []
    for module in sorted(owned, key=lambda name: order.get(name, -1)):
        if module in matrices or not found:
            found.append([])
        found[-1].extend(owned[module])
    return [_joined(columns) for columns in found]


def classes(spec: FlatSpec, num_classes: int) -> list[list[slice]]:
    """The columns of every class: the rows of tensors that have one for each; none if any tensor has not."""
    entries = spec.parameters + spec.buffers
    if any(not entry.shape or entry.shape[0] != num_classes for entry in entries):
        return []
    widths = [(entry.start, (entry.stop - entry.start) // num_classes) for entry in entries]
    return [[slice(start + c * width, start + (c + 1) * width) for start, width in widths] for c in range(num_classes)]


def layers_apart(number: int, t: int, samples: int) -> bool:
    """Whether L = ``number`` layers of clients of few classes may have their own weights in round t: (L − 1) t ≤ 2.5 N.

    They are L − 1 fits more a round to the same N samples than one weight for all layers is, and what fits by chance
    adds up over the rounds, though no single round shows it (docs/method.md).
    """
    return (number - 1) * t <= FITS_A_SAMPLE * samples


def _owner(name: str) -> str:
    """The module that a tensor belongs to; one that is parametrised (weight_norm) keeps its tensors elsewhere."""
    return f".{name}".rpartition(".")[0].partition(".parametrizations.")[0].removeprefix(".")


def _joined(columns: list[slice]) -> list[slice]:
    """``columns`` in order, neighbours as one."""
    joined: list[slice] = []
    for one in sorted(columns, key=lambda each: each.start):
        if joined and joined[-1].stop == one.start:
            one = slice(joined.pop().start, one.stop)
        joined.append(one)
    return joined
