"""The numbers of a round, each under a name."""

from __future__ import annotations

from smartfl.records.round import RoundRecord


def scalars(record: RoundRecord) -> dict[str, float]:
    """Accuracy, losses, weight on attackers, ``seconds/train`` … and whatever the rule logs, ``info/steps`` …"""
    found: dict[str, float | None] = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "proxy_loss": record.proxy_loss,
        "malicious_mass": record.malicious_mass,
        "dropped": float(len(record.dropped)),
    }
    if record.seconds is not None:
        found |= {
            "seconds/train": record.seconds.train,
            "seconds/aggregate": record.seconds.aggregate,
            "seconds/evaluate": record.seconds.evaluate,
        }
    found |= {f"info/{key}": value for key, value in record.info.items()}
    return {key: value for key, value in found.items() if value is not None}
