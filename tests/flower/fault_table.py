"""Rule × fault: what becomes of one bad node among seven.  ``python tests/flower/fault_table.py`` prints the table."""

from __future__ import annotations

import logging
from typing import Any

import torch
from flower_world import FAULTS, HONEST, Fault, arrays_of, federation, model, samples
from flwr.serverapp import strategy as flowers

from smartfl.flower import AggregatorStrategy
from smartfl.flower.layout import Layout
from smartfl.registry import build, names, parameters, resolve
from smartfl.types import Rule

QUICK = {"server_epochs": 2, "iterations": 5}  # enough to run, not to learn
SETTINGS: dict[str, dict[str, Any]] = {
    "fedbe": {"samples": 2},
    "feddf": {},
}


def rules() -> list[str]:
    return names("aggregators")


def rule(name: str) -> Rule:
    """A registered rule, with quick settings; wrappers go around FedAvg."""
    accepted = parameters(resolve("aggregators", name))
    settings = {k: v for k, v in QUICK.items() if k in accepted} | SETTINGS.get(name, {})
    if "fraction" in accepted:
        settings["fraction"] = 0.2
    if "rule" in accepted:
        settings["rule"] = {"name": "fedavg"}
    built: Rule = build("aggregators", name, settings)
    return built


def outcome(name: str, fault: Fault) -> str:
    """One round, one bad node: "refused", "absent", or its weight; raises where the run ends early."""
    net = model()
    share = 1.0 if name == "fedavg" else 0.0  # evaluation knows no rule: once is enough
    strategy = AggregatorStrategy(
        rule(name), model=net, proxy=samples(1), min_available_nodes=1, fraction_evaluate=share
    )
    result = strategy.start(federation(fault), arrays_of(net), num_rounds=2, timeout=0.01)
    layout = Layout.of(arrays_of(net), net)
    row, counters = layout.read(result.arrays, layout.spec.flatten(net))
    assert torch.isfinite(row).all(), "the model is not finite"
    assert counters[0] <= 6, f"the counter is {counters[0]}"
    return said(strategy, fault)


def said(strategy: AggregatorStrategy, fault: Fault) -> str:
    """What the last round's record says of the bad node."""
    record = strategy.last_record
    assert record is not None
    assert record.round == 2, "the run ended early"
    reasons = {d.id: d.reason for d in record.dropped}
    assert set(reasons) <= {HONEST}, f"honest nodes were refused: {reasons}"
    if HONEST in reasons:
        assert fault.outcome != "kept", reasons[HONEST]
        assert fault.reason in reasons[HONEST], reasons[HONEST]
        return fault.outcome
    assert fault.outcome == "kept", "the fault went unnoticed"
    if record.coefficients is None:
        return "–"
    return f"{record.coefficients[record.ids.index(HONEST)]:.2f}"


def flower_outcome(strategy: flowers.FedAvg, fault: Fault) -> str:
    """The same under one of Flower's own strategies."""
    net = model()
    try:
        result = strategy.start(federation(fault), arrays_of(net), num_rounds=2, timeout=0.01)
    except Exception as error:
        return f"run ends: {type(error).__name__}"
    if not result.arrays:
        return "no model"
    values = {k: torch.from_numpy(a.numpy()) for k, a in result.arrays.items()}
    if not all(torch.isfinite(v.double()).all() for v in values.values()):
        return "model not finite"
    with torch.no_grad():
        far = max(float((values[k].double() - v.double()).abs().max()) for k, v in net.state_dict().items())
    return "model lost" if far > 100 else "survives"


def flower_strategies() -> dict[str, flowers.FedAvg]:
    return {
        "Flower's FedAvg": flowers.FedAvg(),
        "Flower's Krum": flowers.Krum(num_malicious_nodes=1),
        "Flower's Bulyan": flowers.Bulyan(num_malicious_nodes=1),
    }


def table() -> str:
    """Markdown: a row a fault, a column a rule or strategy."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    columns: dict[str, dict[str, str]] = {
        name: {f: flower_outcome(s, fault) for f, fault in FAULTS.items()} for name, s in flower_strategies().items()
    }
    columns |= {name: {f: outcome(name, fault) for f, fault in FAULTS.items()} for name in rules()}
    lines = ["| fault | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {f} | " + " | ".join(column[f] for column in columns.values()) + " |" for f in FAULTS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
