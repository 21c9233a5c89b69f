"""Which array of a Flower app's record is which part of smartfl's vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor, nn

from smartfl.errors import UserError
from smartfl.flat import FlatSpec
from smartfl.flower.records import Refused, array_of, read_array


@dataclass(frozen=True, eq=False)
class Layout:
    """The keys of an app's ArrayRecord, and what each of them is.

    spec      the vector (d,) that rules work on
    keys      the record's keys, in its order
    names     key → name in the module: of a parameter or float buffer of the vector, or of a counter
    counters  the integer buffers of one value (BatchNorm's), as they are in the module
    fixed     key → array of what never changes: frozen parameters, tables of integers

    Tied parameters have several keys and one name.  A non-persistent buffer has a place in the vector and no key: its
    values stay the server's own.  The record may also be a plain list of arrays (keys "0", "1", …) in the order of
    ``state_dict()``.
    """

    spec: FlatSpec
    keys: tuple[str, ...]
    names: Mapping[str, str]
    counters: Mapping[str, Tensor]
    fixed: Mapping[str, Array]

    @classmethod
    def of(cls, arrays: ArrayRecord, model: nn.Module) -> Layout:
        """The layout of ``arrays``, the app's initial model; frozen values are loaded into ``model``."""
        spec = FlatSpec.of(model)
        state: dict[str, Any] = model.state_dict(keep_vars=True)
        keys = tuple(arrays.keys())
        listed = keys == tuple(map(str, range(len(state))))
        full = dict(zip(keys, state, strict=True)) if listed else {key: key for key in keys}
        first = {id(t): name for name, t in [*model.named_parameters(), *model.named_buffers()]}
        moving = {e.name for e in spec.parameters + spec.buffers} | set(spec.integers)
        names: dict[str, str] = {}
        fixed: dict[str, Array] = {}
        for key, name in full.items():
            if name not in state:
                raise UserError(f"initial_arrays has '{key}', which the model of AggregatorStrategy has not")
            own = first[id(state[name])]
            try:
                value = read_array(arrays[key], state[name].shape, "biuf", f"'{key}'")
            except Refused as error:
                raise UserError(f"initial_arrays do not fit the model of AggregatorStrategy: {error}") from error
            if own in moving:
                names[key] = own
            else:
                fixed[key] = arrays[key]
                with torch.no_grad():
                    state[name].copy_(value)
        if missing := [e.name for e in spec.parameters if e.name not in names.values()]:
            raise UserError(f"initial_arrays lacks '{missing[0]}'; ArrayRecord(model.state_dict()) has all there is")
        return cls(spec, keys, names, spec.read_integers(model), fixed)

    def fixed_tensors(self) -> dict[str, Tensor]:
        """What never changes, as tensors by key."""
        return {key: torch.from_numpy(array.numpy().copy()) for key, array in self.fixed.items()}

    def read(self, record: ArrayRecord, default: Tensor) -> tuple[Tensor, list[int]]:
        """The row (d,) and the counters in ``record``; what has no key is as in ``default`` (d,)."""
        row = default.clone()
        counters = dict.fromkeys(self.counters, 0)
        places = {e.name: e for e in self.spec.parameters + self.spec.buffers}
        done: set[str] = set()
        for key, name in self.names.items():
            if name in done:  # tied: the first key speaks for all
                continue
            done.add(name)
            if key not in record:
                raise Refused(f"its model has no '{key}'")
            what = f"'{key}' of its model"
            if entry := places.get(name):
                row[entry.start : entry.stop] = read_array(record[key], entry.shape, "f", what).reshape(-1).to(row)
            else:
                counters[name] = int(read_array(record[key], self.counters[name].shape, "biu", what))
        return row, list(counters.values())

    def record(self, vector: Tensor, counters: Sequence[int]) -> ArrayRecord:
        """What is sent to nodes: ``vector`` (d,) and the counters, under the app's own keys."""
        values = self.spec.unflatten(vector)
        values |= {n: torch.full_like(b, c) for (n, b), c in zip(self.counters.items(), counters, strict=True)}
        return ArrayRecord(
            {k: self.fixed[k] if k in self.fixed else array_of(values[self.names[k]]) for k in self.keys}
        )
