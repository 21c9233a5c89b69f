"""Dirichlet draws that are safe for the small concentrations of non-IID experiments."""

from __future__ import annotations

from typing import Any

import numpy as np

from smartfl.errors import UserError

Index = np.ndarray[Any, np.dtype[np.int64]]


def proportions(
    alpha: float, parts: int, size: int | tuple[int, ...], rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(*size, parts) draws of Dir(α·1), each summing to one.

    ``Generator.dirichlet`` breaks sticks where α is small; normalised gamma variates underflow to 0/0 there
    (numpy issue 19637). A draw that is still not finite is refused rather than passed on.
    """
    drawn = rng.dirichlet(np.full(parts, alpha), size)
    if not np.isfinite(drawn).all():
        raise UserError(f"alpha = {alpha} is too small to draw proportions of {parts} parts from")
    return drawn


def cuts(shares: np.ndarray[Any, Any], total: int) -> Index:
    """(…, parts + 1) where to cut ``total`` samples so that part j gets about shares[…, j]; the last takes the rest."""
    bounds = np.zeros((*shares.shape[:-1], shares.shape[-1] + 1), dtype=np.int64)
    bounds[..., 1:] = np.cumsum(shares, axis=-1) * total
    bounds[..., -1] = total
    return bounds


def deal(labels: Index, shares: np.ndarray[Any, Any], rng: np.random.Generator) -> list[Index]:
    """One sorted index array per client: the samples of class c, shuffled, cut by ``shares`` (C, n)[c]."""
    owned: list[list[Index]] = [[] for _ in range(shares.shape[1])]
    for c, row in enumerate(shares):
        members = rng.permutation(np.flatnonzero(labels == c))
        for i, part in enumerate(np.split(members, cuts(row, len(members))[1:-1])):
            owned[i].append(part)
    return [np.sort(np.concatenate(parts)) for parts in owned]
