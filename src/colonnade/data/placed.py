"""Where the rows of a table go in a matrix that has them in another order.

A table is read from its first row to its last. In memory each row goes to its place at once. In a file that would be a
page here and a page there, written again and again, so it takes two steps: rows are appended to the region of the file
that they belong to, and then each region, which fits into memory, is put in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

REGION = 1 << 26  # bytes of a file that are put in order at once
TILE = 1 << 9  # rows that are turned from columns into rows at once: they fit into the processor's cache

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Placement:
    """Rows of a table in its own order, and where each is written; afterwards regions may have to be put in order."""

    rows: Values  # (R,) ascending
    slots: Values  # (R,) where each is written
    region: int = 0  # rows of a region; 0: the slots are their places
    starts: Values | None = None  # where each region begins among:
    places: Values | None = None  # (R,) where rows belong, region by region, in the order of their slots

    def of(self, first: int, count: int) -> tuple[Values, Values]:
        """Those of some rows of the table: their places among these, and their slots."""
        begin, end = np.searchsorted(self.rows, (first, first + count))
        return self.rows[begin:end] - first, self.slots[begin:end]

    def settle(self, out: Tensor) -> None:
        """Put what was written in order."""
        if self.starts is None or self.places is None:
            return
        for number, (begin, end) in enumerate(pairwise(self.starts)):
            part = out[number * self.region : (number + 1) * self.region].numpy()
            rows = part[: end - begin].copy()
            if len(rows) < len(part):
                part[:] = 0
            part[self.places[begin:end] - number * self.region] = rows


def place(rows: Values, count: int, region: int = 0) -> Placement | None:
    """Where the rows of a table go.

    Args:
        rows: (N,) which row of the table belongs into each place of the matrix; -1: none.
        count: how many rows the table has.
        region: how many rows of the matrix are put in order at once; 0: all rows go to their places directly.

    Returns:
        None, if they are the table's own rows in its own order.
    """
    if len(rows) == count and bool((rows == np.arange(count)).all()):
        return None
    places = np.argsort(rows, kind="stable").astype(_integers(len(rows)))
    ordered = rows[places].astype(_integers(count))
    held = np.searchsorted(ordered, 0)  # before it those of nobody
    ordered, places = ordered[held:], places[held:]
    if not region or len(rows) <= region:
        return Placement(ordered, places)
    where = places // region
    count = -(-len(rows) // region)
    by_region = np.argsort(where.astype(_integers(count)), kind="stable").astype(places.dtype)
    starts = np.append(0, np.cumsum(np.bincount(where, minlength=count)))
    slots = np.empty_like(places)
    for number, (begin, end) in enumerate(pairwise(starts)):
        slots[by_region[begin:end]] = np.arange(end - begin) + number * region
    return Placement(ordered, slots, region, starts, places[by_region])


def write(out: Tensor, columns: Values, rows: Values | None, slots: Values) -> None:
    """Some rows of a block of columns (F, B), None for all, into a matrix."""
    for begin in range(0, len(slots), TILE):
        end = begin + TILE
        tile = columns[:, begin:end] if rows is None else columns[:, rows[begin:end]]
        out.numpy()[slots[begin:end]] = tile.T


def _integers(most: int) -> type[np.signedinteger[Any]]:
    """Whole numbers up to so many, as short as they can be: there are as many as rows, and short ones sort faster."""
    return np.int16 if most < 1 << 15 else np.int32 if most < 1 << 31 else np.int64
