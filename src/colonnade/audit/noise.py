"""Is what left what the ledger says: short uploads plus fresh Gaussian noise of the right size? Tests by p-value.

What is claimed: y = m + n + rounding, where m has norm R at most (and no number above `largest`), n is independent
N(0, s^2) in every cell, and the rounding is below a known bound e. Then, whatever m is,

    (|y| - |e| - R)^2 / s^2   is at most a chi-square with D degrees of freedom       length; the same for every row
    <y, c> - |e| - R          is at most s N(0, 1), c a unit vector fixed before      length along the canary
    |y_i| - e_i - largest     is at most s |N(0, 1)|                                  largest number
    (|y| + |e|)^2 / s^2       is at least a chi-square with D degrees of freedom      size of the noise; rows, columns
    the same of y less its part along c, with D - 1: there m, which is long, is left out

("at most": stochastically.) With nothing uploaded, y is symmetric in every cell by itself, whatever is rounded how, so
signs are fair coins, and so are products of two signs of which no cycle is made: their number is binomial with 1/2.

On the grid of step g, y/g is a whole number, always. Its lowest bits are fair coins up to exp(-2 pi^2 (s/2^8 g)^2) of
each other, since s is at least 2^20 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from colonnade.audit.checks import scipy, two_sided
from colonnade.audit.claims import Additive
from colonnade.audit.shapes import Layout
from colonnade.wire.numbers import Numbers

BITS = 8  # lowest ones of a whole number that are tossed
EXACT = {torch.float32: 2.0**24, torch.float64: 2.0**53}  # whole numbers below this are exact


@dataclass(frozen=True)
class Seen:
    """Releases (K, D) of one layout, as they were read, under one claim."""

    values: Tensor
    claim: Additive
    layout: Layout
    numbers: Numbers

    @property
    def far(self) -> Tensor:
        """(K, D): at most how far each number was rounded."""
        return self.claim.rounded(self.values, self.numbers)


def too_long(seen: Seen, along: Tensor) -> Iterator[float]:
    """Uploads that left longer than they may; `along` (K, D) are unit vectors."""
    claim, s = seen.claim, seen.claim.deviation
    stats = scipy("stats")
    cells = seen.values.shape[1]
    reach = claim.reach(cells)
    for y, e, c in zip(seen.values, seen.far, along, strict=True):
        far = float(e.norm())
        yield _above(float(y.norm()) - far - reach, s, cells)
        yield float(stats.norm.sf((float(y @ c) - far - reach) / s))
        most = float((y.abs() - e).max()) - claim.largest
        yield min(1.0, 2 * cells * float(stats.norm.sf(most / s)))
    for table, far_table in zip(seen.layout.tables(seen.values), seen.layout.tables(seen.far), strict=True):
        _, rows, width = table.shape
        longest = float((table.norm(dim=2) - far_table.norm(dim=2)).max()) - claim.reach(width)
        yield min(1.0, len(table) * rows * _above(longest, s, width))


def _above(excess: float, deviation: float, cells: int) -> float:
    return float(scipy("stats").chi2.sf((max(0.0, excess) / deviation) ** 2, cells))


def too_small(seen: Seen, along: Tensor | None = None) -> Iterator[float]:
    """Noise that is smaller than promised: in all, in a row, in a column; less its part `along` (K, D) if given."""
    y, far, s = seen.values, seen.far, seen.claim.deviation
    free = y.numel()
    if along is not None:
        y, free = y - (y * along).sum(dim=1, keepdim=True) * along, free - len(y)
    yield _below(float(y.norm() + far.norm()), s, free)
    for table, far_table in zip(seen.layout.tables(seen.values), seen.layout.tables(far), strict=True):
        for axis in (1, 2):  # columns, rows
            lengths = table.norm(dim=axis) + far_table.norm(dim=axis)
            yield min(1.0, lengths.numel() * _below(float(lengths.min()), s, table.shape[axis]))


def too_small_each(seen: Seen) -> Iterator[float]:
    """Noise that is smaller than promised in one of the releases, which is all noise; and as `too_small`."""
    lengths = seen.values.norm(dim=1) + seen.far.norm(dim=1)
    yield min(1.0, len(lengths) * _below(float(lengths.min()), seen.claim.deviation, seen.values.shape[1]))
    yield from too_small(seen)


def _below(length: float, deviation: float, cells: int) -> float:
    return float(scipy("stats").chi2.cdf((length / deviation) ** 2, cells))


def dependent(absent: Tensor, layout: Layout) -> Iterator[float]:
    """Noise that was used twice: (R, P, D), releases of several parties that uploaded zeros."""
    signs = absent.sign()
    yield _alike(signs[:, 1:], signs[:, :1])  # between parties
    yield _alike(signs[1:], signs[:-1])  # between a party's releases: neighbours,
    yield _alike(signs[1:], signs[:1])  # and each with the first
    tables = layout.tables(signs.flatten(0, 1))
    for table in tables:
        yield _alike(table[:, 1:], table[:, :-1])  # between rows
        yield _alike(table[:, 1:], table[:, :1])
        yield _alike(table[:, :, 1:], table[:, :, :-1])  # between numbers of a row
        yield _alike(table[:, :, 1:], table[:, :, :1])
    for one, other in pairwise(tables):  # between arrays
        cells = min(one[0].numel(), other[0].numel())
        yield _alike(one.flatten(1)[:, :cells], other.flatten(1)[:, :cells])


def _alike(one: Tensor, other: Tensor) -> float:
    """The p-value of how often signs are the same; zeros say nothing."""
    product = one * other
    same, different = int((product > 0).sum()), int((product < 0).sum())
    return two_sided(same, same + different) if same + different else 1.0


def off_grid(seen: Seen) -> int:
    """How many numbers are no whole number of steps: none, of correct code. Beyond exact numbers all are."""
    steps = seen.values / (seen.claim.grid or 1.0)
    return int((steps != steps.trunc()).sum())


def uneven_bits(seen: Seen) -> Iterator[float]:
    """The lowest bits of the whole numbers of steps, each of which is a coin."""
    steps = (seen.values / (seen.claim.grid or 1.0)).flatten()
    travels = torch.float32 if seen.numbers.name == "float32" else seen.layout.dtype
    kept = steps[(steps == steps.trunc()) & (steps.abs() < EXACT[travels])].long()
    for bit in range(BITS if len(kept) else 0):
        yield two_sided(int(((kept >> bit) & 1).sum()), len(kept))
