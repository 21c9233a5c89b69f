"""What the server could know without a test set: its samples' verdict, and how many clients a model rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from smartfl.records.result import LAST
from smartfl.records.round import RoundRecord
from smartfl.records.run import RunRecord


@dataclass(frozen=True)
class Trust:
    """One run's line.

    proxy      accuracy on the server's samples in the last round with its 95 % interval, "–" without samples
    test       test accuracy of the same round
    covered    of the evaluated rounds, how many had the test accuracy inside the interval
    effective  effective number of clients 1/Σp², mean of the last ten rounds; "–" for rules without weights
    screened   share of the clients that screening refused, mean over the rounds
    suspects   clients of a round against whom past rounds hold more than ½, mean of the last ten rounds
    chance     how much of the weights found SmartFL took for chance and drew back, mean of the last ten rounds
    warnings   each once, with the first round that has it
    """

    label: str
    proxy: str
    test: str
    covered: str
    effective: str
    screened: str
    suspects: str
    chance: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, label: str, run: RunRecord) -> Trust:
        judged = [r for r in run.rounds if "proxy_accuracy_low" in r.info]
        inside = [_inside(r) for r in judged if r.accuracy is not None]
        last = judged[-1] if judged else None
        first: dict[str, int] = {}
        for r in run.rounds:
            for text in r.warnings:
                first.setdefault(text, r.round)
        return cls(
            label=label,
            proxy="–" if last is None else _interval(last),
            test="–" if last is None or last.accuracy is None else f"{last.accuracy:.1%}",
            covered=f"{sum(inside)} of {len(inside)}" if inside else "–",
            effective=_mean(run, "effective_clients", "{:.1f}", LAST),
            screened=_mean(run, "screened_share", "{:.1%}"),
            suspects=_mean(run, "mistrusted", "{:.1f}", LAST),
            chance=_mean(run, "drawn_back", "{:.0%}", LAST),
            warnings=tuple(f"{text} (round {t})" for text, t in first.items()),
        )

    @property
    def said(self) -> bool:
        """Whether there is anything to show: records of older versions have none of it."""
        return bool(self.warnings) or (self.proxy, self.effective, self.screened) != ("–", "–", "–")


def warnings(lines: Iterable[Trust]) -> list[tuple[str, list[str]]]:
    """Each warning once, with the runs that have it."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for text in line.warnings:
            found.setdefault(text, []).append(line.label)
    return list(found.items())


def _inside(r: RoundRecord) -> bool:
    assert r.accuracy is not None
    return r.info["proxy_accuracy_low"] <= r.accuracy <= r.info["proxy_accuracy_high"]


def _interval(r: RoundRecord) -> str:
    low, high = r.info["proxy_accuracy_low"], r.info["proxy_accuracy_high"]
    return f"{r.info['proxy_accuracy']:.1%} ({100 * low:.1f}–{100 * high:.1f})"


def _mean(run: RunRecord, key: str, form: str, last: int = 0) -> str:
    """The mean over the rounds that have it, or over the ``last`` of them."""
    values = [r.info[key] for r in run.rounds if key in r.info][-last:]
    return form.format(fmean(values)) if values else "–"
