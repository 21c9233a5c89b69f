"""Which columns of a model vector are one layer."""

from __future__ import annotations

from smartfl.flat import Entry, FlatSpec


def layers(spec: FlatSpec) -> list[list[slice]]:
    """The columns of every layer, that is of a module's own parameters and buffers, in their order.

    A module that has vectors only, as normalisation has, belongs to the layer before it.
    """
    has_matrix = {_module(entry) for entry in spec.parameters if len(entry.shape) > 1}
    layer_of: dict[str, str] = {}
    found: dict[str, list[slice]] = {}
    for entry in spec.parameters + spec.buffers:
        module = _module(entry)
        if module not in layer_of:
            layer_of[module] = module if module in has_matrix or not found else next(reversed(found))
        columns = found.setdefault(layer_of[module], [])
        if columns and columns[-1].stop == entry.start:
            columns[-1] = slice(columns[-1].start, entry.stop)
        else:
            columns.append(slice(entry.start, entry.stop))
    return list(found.values())


def _module(entry: Entry) -> str:
    return entry.name.rpartition(".")[0]
