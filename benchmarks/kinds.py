"""Honest clients of two kinds: does SmartFL take one of them for attackers?

    python benchmarks/kinds.py run --out results/kinds/records.jsonl
    python benchmarks/kinds.py table --out results/kinds/records.jsonl

Digits.  A share of the 80 clients has images that are inverted, or whose pixels are shuffled (all by one permutation);
the server's samples and the test set have them in the same share.  A line per setting and rule: accuracy on each kind
of the test set after 20 rounds, the second kind's weight, and who is held to contradict the labels.
Settings that are on record are not run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import torch
from record import append, to_run
from torch import Tensor

from smartfl.data.dataset import Dense
from smartfl.data.federation import Federation
from smartfl.experiment.schema import Experiment
from smartfl.simulation import Simulation

CLIENTS, ROUNDS = 80, 20
RULES: dict[str, dict[str, Any]] = {
    "Uniform": {"name": "uniform"},
    "SmartFL": {"name": "smartfl"},
    "SmartFL, no memory": {"name": "smartfl", "mistrust": 0.0},
}


def inverted(images: Tensor) -> Tensor:
    """White on black as black on white; digits have values from 0 to 1."""
    return 1 - images


def shuffled(images: Tensor) -> Tensor:
    """The pixels of (b, …) in another order, the same for all."""
    flat = images.flatten(1)
    return flat[:, torch.randperm(flat.shape[1], generator=torch.Generator().manual_seed(9))].view_as(images)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {"inverted": inverted, "shuffled": shuffled}


def two_kinds(
    federation: Federation, share: float, change: Callable[[Tensor], Tensor]
) -> tuple[Federation, set[int], Tensor]:
    """The federation with ``share`` of its clients, server's samples and test samples changed; who and which are."""
    generator, clients = torch.Generator().manual_seed(5), len(federation.shards)
    who = set(torch.randperm(clients, generator=generator)[: round(share * clients)].tolist())
    owned = torch.cat([federation.shards[client] for client in sorted(who)])
    dataset, proxy = federation.dataset, federation.proxy
    train, test = dataset.train, dataset.test
    assert isinstance(train, Dense)
    assert isinstance(test, Dense)
    tested = torch.rand(len(test), generator=generator) < share
    if proxy is not None:
        mine = torch.rand(len(proxy.inputs), generator=generator) < share
        proxy = replace(proxy, inputs=_changed(proxy.inputs, mine.nonzero().flatten(), change))
    dataset = replace(
        dataset,
        train=replace(train, values=_changed(train.values, owned, change)),
        test=replace(test, values=_changed(test.values, tested.nonzero().flatten(), change)),
    )
    return replace(federation, dataset=dataset, proxy=proxy), who, tested


def _changed(values: Tensor, index: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    return values.index_copy(0, index, change(values[index]))


def run(alpha: float, share: float, kind: str, rule: str) -> dict[str, Any]:
    experiment = Experiment.of(
        {
            "rounds": ROUNDS,
            "evaluate_every": ROUNDS,
            "data": {"dataset": "digits", "clients": CLIENTS, "alpha": alpha, "proxy": {"size": 128}},
            "model": {"name": "mlp"},
            "client": {"lr": 1e-2, "epochs": 2, "participation": 0.6},
            "aggregator": RULES[rule],
        }
    )
    simulation = Simulation(experiment, executor="serial")
    simulation.federation, second, tested = two_kinds(simulation.federation, share, CHANGES[kind])
    weights = [
        sum(p for i, p in zip(r.ids, r.coefficients, strict=True) if i in second)
        for r in simulation
        if r.coefficients is not None
    ]
    data = simulation.federation.dataset
    right = simulation.predict(data.test[torch.arange(len(data.test))]).argmax(dim=1) == data.test_labels
    past = getattr(simulation.rules[0], "_past", None)
    accused = set() if past is None else {i for i in range(CLIENTS) if past.contradict([i]).item()}
    return {
        "first": right[~tested].double().mean().item(),
        "second": right[tested].double().mean().item(),
        "weight": fmean(weights),
        "accused": [len(accused - second), len(accused & second)],
    }


def table(lines: list[dict[str, Any]]) -> str:
    rows = [
        "| α | second kind | share | rule | first, % | second, % | weight of the second, % | accused of each |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for line in lines:
        first, second, weight = (f"{100 * line[key]:.1f}" for key in ("first", "second", "weight"))
        where = f"{line['alpha']:g} | {line['kind']} | {line['share']:g} | {line['rule']}"
        rows.append(f"| {where} | {first} | {second} | {weight} | {line['accused'][0]}, {line['accused'][1]} |")
    return "\n".join(rows)


def main() -> None:
    out, lines = to_run(__doc__, table)
    torch.set_num_threads(1)
    done = {(line["alpha"], line["share"], line["kind"], line["rule"]) for line in lines}
    for alpha, kind, share, rule in product((0.01, 1.0), CHANGES, (0.2, 0.4), RULES):
        if (alpha, share, kind, rule) not in done:
            setting = {"alpha": alpha, "share": share, "kind": kind, "rule": rule}
            append(out, setting | run(alpha, share, kind, rule))


if __name__ == "__main__":
    main()
