"""What the server could know without a test set: its samples' verdict, and how many clients a model rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from smartfl.report.run_data import LAST, RoundData, RunData


@dataclass(frozen=True)
class Trust:
    """One run's line.

    proxy      accuracy on the server's samples in the last round with its 95 % interval, "–" without samples
    test       test accuracy of the same round
    covered    of the evaluated rounds, how many had the test accuracy inside the interval
    effective  effective number of clients 1/Σp², mean of the last ten rounds; "–" for rules without weights
    screened   share of the clients that screening refused, mean over the rounds
    """

    label: str
    proxy: str
    test: str
    covered: str
    effective: str
    screened: str

    @classmethod
    def of(cls, label: str, run: RunData) -> Trust:
        judged = [r for r in run.rounds if "proxy_accuracy_low" in r.info]
        inside = [_inside(r) for r in judged if r.accuracy is not None]
        last = judged[-1] if judged else None
        effective = _mean([r.info["effective_clients"] for r in run.rounds if "effective_clients" in r.info][-LAST:])
        screened = _mean([r.info["screened_share"] for r in run.rounds if "screened_share" in r.info])
        return cls(
            label=label,
            proxy="–" if last is None else _interval(last),
            test="–" if last is None or last.accuracy is None else f"{last.accuracy:.1%}",
            covered=f"{sum(inside)} of {len(inside)}" if inside else "–",
            effective="–" if effective is None else f"{effective:.1f}",
            screened="–" if screened is None else f"{screened:.1%}",
        )

    @property
    def said(self) -> bool:
        """Whether there is anything to show: records of older versions have none of it."""
        return (self.proxy, self.effective, self.screened) != ("–", "–", "–")


def _inside(r: RoundData) -> bool:
    assert r.accuracy is not None
    return r.info["proxy_accuracy_low"] <= r.accuracy <= r.info["proxy_accuracy_high"]


def _interval(r: RoundData) -> str:
    low, high = r.info["proxy_accuracy_low"], r.info["proxy_accuracy_high"]
    return f"{r.info['proxy_accuracy']:.1%} ({100 * low:.1f}–{100 * high:.1f})"


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
