"""Everything a simulation carries from one round to the next; randomness is a tree and needs no state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class State:
    """After ``round`` rounds.

    vectors    the global model (d_g,) of each architecture group
    integers   the integer buffers of each group
    shared     (S,) the server's state of the client algorithm (SCAFFOLD's c), empty if it keeps none
    own        the clients' own states (S,) by client id (SCAFFOLD's c_i); absent means zero
    rules      the aggregator's state per group
    attack     the attack's state
    """

    round: int
    vectors: list[Tensor]
    integers: list[list[int]]
    shared: Tensor
    own: dict[int, Tensor] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)
    attack: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors under flat names."""
        flat = {f"vector/{g}": v for g, v in enumerate(self.vectors)}
        if self.shared.numel():
            flat["shared"] = self.shared
        flat |= {f"own/{i}": v for i, v in self.own.items()}
        for g, rule in enumerate(self.rules):
            flat |= {f"rule/{g}/{k}": v for k, v in rule.items() if isinstance(v, Tensor)}
        flat |= {f"attack/{k}": v for k, v in self.attack.items() if isinstance(v, Tensor)}
        return flat

    def scalars(self) -> dict[str, Any]:
        """The rest, JSON-ready."""
        return {
            "round": self.round,
            "groups": len(self.vectors),
            "integers": self.integers,
            "rules": [{k: v for k, v in rule.items() if not isinstance(v, Tensor)} for rule in self.rules],
            "attack": {k: v for k, v in self.attack.items() if not isinstance(v, Tensor)},
        }

    @classmethod
    def of(cls, tensors: dict[str, Tensor], scalars: dict[str, Any]) -> State:
        """The inverse of ``tensors`` and ``scalars``."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        return cls(
            round=scalars["round"],
            vectors=[tensors[f"vector/{g}"] for g in range(scalars["groups"])],
            integers=scalars["integers"],
            shared=tensors.get("shared", torch.empty(0)),
            own={int(k): v for k, v in under("own/").items()},
            rules=[rule | under(f"rule/{g}/") for g, rule in enumerate(scalars["rules"])],
            attack=scalars["attack"] | under("attack/"),
        )
