"""Distances between clients and to a centre, exact enough to rank them, without an (n, d) temporary.

All differences are float64: that of two float32 values is exact but for the last bit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from smartfl.aggregators.blocks import columns_at_once, for_blocks, sum_of_blocks

SAMPLE = 256  # columns that are looked at to find a row amid the others
DIGITS = 1e-3  # a squared distance below this part of the squares it is the difference of has lost three digits


def squared_distances(rows: Tensor) -> Tensor:
    """(n, n) float64 matrix of ‖v_i − v_j‖² for ``rows`` (n, d), each right to about 12 digits.

    ‖a‖² + ‖b‖² − 2ab from one Gram product about a row amid the others: a matrix product is several times faster than
    n² differences, and there is little to cancel.  Two rows that are close to each other but far from that one would
    lose their digits, and a huge row in the middle everybody's.  So pairs that cancelled are computed again, about one
    of the two, until none is left: attackers that send the same row cost one more product among themselves.  A row of
    1e30 touches its own distances only.  O(n² d).
    """
    n = len(rows)
    out = torch.zeros((n, n), dtype=torch.float64, device=rows.device)
    lost = torch.zeros_like(out, dtype=torch.bool)
    centre, group = _amid(_exact(rows[:, :SAMPLE])), torch.arange(n, device=rows.device)
    while True:
        gram = gram_about(rows, centre, group)
        norms = gram.diagonal()
        both = norms[:, None] + norms
        squares = (both - 2 * gram).fill_diagonal_(0)
        cancelled = ~(squares >= DIGITS * both)  # so written, NaN counts too: ∞ − ∞ of values beyond 1e154
        place = (group[:, None], group)
        out[place] = squares
        lost[place] = cancelled.fill_diagonal_(False)
        if not lost.any():
            return out
        # About this row its own distances are exact, so it is never in a group again, and n rounds are the most.
        centre = int(lost.sum(dim=1).argmax())
        lost[centre, centre] = True
        group = torch.nonzero(lost[centre]).flatten()


def gram_about(rows: Tensor, centre: int, group: Tensor | None = None) -> Tensor:
    """(m, m) float64 ⟨v_i − c, v_j − c⟩, c the row ``centre``, for the rows ``group`` (m,) of ``rows`` (n, d), or all.

    Symmetric to the last bit, and exactly 0 for the centre and for rows equal to it.
    """

    def products(part: slice) -> Tensor:
        block = rows[:, part].detach()
        origin = block[centre].to(torch.float64)
        away = (block if group is None or len(group) == len(rows) else block[group]) - origin
        return away @ away.T

    total = sum_of_blocks(products, rows.shape[1], columns_at_once(len(rows), torch.float64))
    where = centre if group is None else group == centre
    total[where] = 0  # 0 · ∞, where a difference overflows
    total[:, where] = 0
    return (total + total.T) / 2


def gram_amid(rows: Tensor) -> Tensor:
    """(n, n) float64 ⟨v_i − c, v_j − c⟩ for ``rows`` (n, d), c one of them that lies amid the most.

    A sample of columns says which.  Who looks ordinary there may be far off elsewhere, which shows in the product; then
    it is taken once more, about a row that is not.
    """
    centre = _amid(_exact(rows[:, :SAMPLE]))
    gram = gram_about(rows, centre)
    squares = gram.diagonal()[:, None] + gram.diagonal() - 2 * gram
    better = _amid(squares)
    if squares[centre].median() > 1e4 * squares[better].median():
        gram = gram_about(rows, better)
    return gram


def distances_in_hull(gram: Tensor, p: Tensor) -> Tensor:
    """(n,) ‖v_i − Σ_j p_j v_j‖ for p on the simplex, from the Gram matrix (n, n) of the rows about any point.

    G_ii − 2 (Gp)_i + pᵀGp: no look at the rows.  Right to about 1e-8 of what the two are away from that point.
    """
    mixed = gram @ p
    return (gram.diagonal() - 2 * mixed + p @ mixed).clamp_min(0).sqrt()


def distances_to(rows: Tensor, centre: Tensor, order: Literal[1, 2] = 2) -> Tensor:
    """(n,) float64 ℓ1 or ℓ2 distances ‖v_i − c‖ of ``rows`` (n, d) to ``centre`` (d,)."""

    def powers(part: slice) -> Tensor:
        difference: Tensor = rows[:, part] - centre[part].to(torch.float64)
        return difference.abs_().sum(dim=1) if order == 1 else difference.square_().sum(dim=1)

    total = sum_of_blocks(powers, rows.shape[1], columns_at_once(len(rows), torch.float64))
    return total if order == 1 else total.sqrt()


def mix_differences(rows: Tensor, centre: Tensor, p: Tensor, add_to: Tensor | None = None) -> Tensor:
    """(d,) float64 Σ p_i (v_i − c) for ``rows`` (n, d), ``centre`` (d,) and any weights ``p`` (n,); or added to one."""
    weights = p.to(rows.device, torch.float64)
    out = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device) if add_to is None else add_to

    def mix(part: slice) -> None:
        out[part] += weights @ (rows[:, part] - centre[part].to(torch.float64))

    for_blocks(mix, rows.shape[1], columns_at_once(len(rows), torch.float64))
    return out


def _exact(rows: Tensor) -> Tensor:
    """(n, n) squared distances by explicit differences: for a few columns."""
    wide = rows.detach().to(torch.float64)
    return torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").square()


def _amid(squares: Tensor) -> int:
    """The row whose median distance to the others is the smallest, which less than half of the rows cannot move far."""
    return int(squares.median(dim=1).values.argmin())
