"""The server's proxy samples, taken out of the training data before the clients get theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from smartfl.errors import UserError

Index = np.ndarray[Any, np.dtype[np.int64]]

REACHED = 0.9


def proxy_profile(total: int, classes: int, imbalance: float) -> list[int]:
    """Samples per class, largest class first: n_c ∝ IF^(−c/(C−1)), Σ n_c = total, at least one each.

    The profile of Meta-Weight-Net (Shu et al. 2019) with the total fixed, in whole numbers by largest remainder.
    ``imbalance`` IF = max/min. A degree is refused when the smallest class is down to one sample and the largest still
    has less than 90 % of IF, and no higher degree does better: 128 samples of 10 classes carry about 50.
    """
    if not imbalance >= 1:
        raise UserError(
            f"data.proxy.imbalance = {imbalance} is not accepted: the largest class over the smallest is ≥ 1"
        )
    if total < classes:
        raise UserError(
            f"data.proxy.size = {total} is not accepted with data.proxy.imbalance: at least {classes}, one per class"
        )
    counts = _rounded(total, classes, imbalance)
    if not _realised(counts, imbalance) and imbalance > (largest := _largest(total, classes)):
        raise UserError(
            f"data.proxy.imbalance = {imbalance:g} cannot be realised with {total} samples of {classes} classes; "
            f"accepted: 1 to {largest}"
        )
    return counts


def _rounded(total: int, classes: int, imbalance: float) -> list[int]:
    position = np.arange(classes) / max(classes - 1, 1)
    weights = float(imbalance) ** -position
    quotas = total * weights / weights.sum()
    counts = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(counts - quotas, kind="stable")
    counts[by_remainder[: total - int(counts.sum())]] += 1
    while counts.min() == 0:
        counts[counts.argmax()] -= 1
        counts[counts.argmin()] += 1
    return [int(count) for count in counts]


def _realised(counts: list[int], imbalance: float) -> bool:
    return counts[-1] > 1 or counts[0] >= REACHED * imbalance


def _largest(total: int, classes: int) -> int:
    """The largest whole degree that is realised: beyond it the largest class cannot grow as fast as IF."""
    return max(degree for degree in range(1, 2 * total) if _realised(_rounded(total, classes, degree), degree))


def split_proxy(
    labels: Index, size: int, imbalance: float | None, rng: np.random.Generator, num_classes: int, missing: int = 0
) -> tuple[Index, Index]:
    """Sorted positions of the proxy samples and of the rest.

    Without imbalance (None or 1) a uniform draw without replacement, not stratified, as in the paper. Otherwise the
    counts of ``proxy_profile``, with the classes in an order that ``rng`` permutes.  Of ``missing`` classes, which
    ``rng`` draws, there is no proxy sample.
    """
    if not 0 <= size <= len(labels):
        raise UserError(f"data.proxy.size = {size} is accepted from 0 to {len(labels)}, the number of training samples")
    if missing >= num_classes:
        raise UserError(
            f"data.proxy.missing = {missing} is accepted from 0 to {num_classes - 1}, one class must be left"
        )
    classes = rng.permutation(num_classes)[missing:] if missing else np.arange(num_classes)
    if imbalance is None or imbalance == 1:
        allowed = np.flatnonzero(np.isin(labels, classes)) if missing else np.arange(len(labels))
        if len(allowed) < size:
            raise UserError(
                f"data.proxy.size = {size} with data.proxy.missing = {missing}: the other classes have {len(allowed)} "
                "samples; a smaller size is accepted"
            )
        chosen = allowed[rng.permutation(len(allowed))[:size]]
    else:
        chosen = _imbalanced(labels, classes, proxy_profile(size, len(classes), imbalance), imbalance, rng)
    proxy = np.zeros(len(labels), dtype=bool)
    proxy[chosen] = True
    return np.flatnonzero(proxy), np.flatnonzero(~proxy)


def _imbalanced(labels: Index, classes: Index, profile: list[int], imbalance: float, rng: np.random.Generator) -> Index:
    chosen = []
    for c, count in zip(rng.permutation(classes), profile, strict=True):
        members = np.flatnonzero(labels == c)
        if len(members) < count:
            raise UserError(
                f"data.proxy.imbalance = {imbalance:g} with data.proxy.size = {sum(profile)} asks for {count} samples "
                f"of class {c}, which has {len(members)}; a smaller data.proxy.size is accepted"
            )
        chosen.append(rng.permutation(members)[:count])
    return np.concatenate(chosen)
