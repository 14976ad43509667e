"""Sides: whether a number is above its column's cut, which has enough rows on either side of it.

The cut is the median of the training rows. A column of few values may have hardly anything above its median, such as a
yes/no column with more yes than no: then the cut is the largest value below the median. A column that has not a tenth
of the rows on either side so either is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

LEAST = 0.1  # of the rows on the smaller side
MOST_ROWS = 100_000  # that cuts are found on: of more, so many at equal distances


@dataclass(frozen=True)
class Cuts:
    """Which numbers of a row have sides, and above which value each is on the upper one."""

    places: Tensor = field(repr=False)  # (G,) in a row of columns, all in one line
    values: Tensor = field(repr=False)  # (G,)

    def above(self, columns: Tensor) -> Tensor:
        """(N, G) yes or no, of columns (N, ...)."""
        return columns.flatten(1)[:, self.places] > self.values


def find_cuts(columns: Tensor, most: int) -> Cuts:
    """The cuts of the first `most` columns that have two sides on these rows (N, ...); perhaps of fewer, or none."""
    flat = columns.flatten(1)
    if not len(flat):
        return Cuts(torch.zeros(0, dtype=torch.int64, device=flat.device), flat.new_zeros(0))
    middle = flat.median(dim=0).values
    lower = torch.where(flat < middle, flat, -torch.inf).amax(dim=0)
    cut = torch.where(_two_sided(flat, middle), middle, lower)
    chosen = _two_sided(flat, cut).nonzero()[:, 0][:most]
    return Cuts(chosen, cut[chosen])


def some_of(rows: Tensor) -> Tensor:
    """At most so many of these rows as cuts are found on."""
    return rows[:: -(-len(rows) // MOST_ROWS)] if len(rows) else rows


def _two_sided(flat: Tensor, cut: Tensor) -> Tensor:
    """(F,) whether enough rows are on either side."""
    share = (flat > cut).double().mean(dim=0)
    return (share >= LEAST) & (share <= 1 - LEAST)
