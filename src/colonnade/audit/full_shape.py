"""The run's own shape, once: uploads as large as those of the run, in its numbers, through a real gate.

Mistakes that depend on the shape (clipping that is skipped for long uploads, one row in a thousand that is left out)
show here and in no small game. A few releases are enough, because each of them has many numbers: noise that is too
small by a fifth shows in a thousand of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.checks import Check, judged, not_tried
from colonnade.audit.claims import Additive
from colonnade.audit.game import WHAT, directions
from colonnade.audit.noise import Seen
from colonnade.audit.shapes import Layout
from colonnade.audit.through_gate import ThroughGate
from colonnade.privacy.mechanism import Mechanism
from colonnade.wire.numbers import Numbers

LENGTHS = (2.0**30, 8.0, 1.0)  # of canaries, in units of the longest upload: far above any noise, moderate, allowed
ENOUGH_CELLS = 20_000  # of noise in all: 0.8 of it is twenty deviations away
ENOUGH_ROWS = 10_000  # behind long canaries, so that one in a thousand, drawn at random, is among them
MOST_CELLS = 4_000_000  # in all, beyond what is needed once
MOST_RELEASES = 64
TOLERANCE = 1e-9  # of a norm that is computed in float64
FIRST = 2**40  # number of the first round: no game and no run comes near it
CLIPPING, SIZE, FRESH, LOW_BITS = "length of uploads", "size of the noise", "fresh noise", "low bits"


class Longest(NamedTuple):
    """How long uploads leave before noise, in units of the longest allowed one."""

    norm: float
    rounding: float  # by how much it may be wrong


@dataclass(frozen=True)
class FullShape:
    """What left at the run's own shape."""

    layout: Layout
    claim: Additive
    numbers: Numbers
    along: Tensor = field(repr=False)  # (K, D) unit vectors of the canaries
    present: Tensor = field(repr=False)  # (K, D) their releases
    absent: Tensor = field(repr=False)  # (R, 2, D) of two parties that uploaded zeros
    longest: Longest | None = None  # None: the noise cannot be drawn again, and taken off

    def checks(self) -> Iterator[Check]:
        """Everything that a claim of Gaussian noise says of single releases."""
        shown = {"shape": str(self.layout), "releases": len(self.present) + self.absent.shape[:2].numel()}
        told = f"{shown['releases']} releases of the run's own shape, {self.layout}"
        present, absent = self._seen(self.present), self._seen(self.absent.flatten(0, 1))
        yield self._length(present, told, shown)
        yield judged(
            SIZE,
            (*noise.too_small(absent), *noise.too_small(present, self.along)),
            "the noise is SMALLER than the ledger says, in all or in some rows or columns",
            f"no less noise than promised, in all, in every row and in every column: {told}",
            **shown,
        )
        yield judged(
            FRESH,
            noise.dependent(self.absent, self.layout),
            "noise was used TWICE: between parties, releases, rows or numbers of one upload",
            "no trace of noise that was used twice: between parties, releases, rows and numbers",
            **shown,
        )
        yield self._low_bits(present, absent, shown)

    def _length(self, present: Seen, told: str, shown: dict[str, object]) -> Check:
        wrong = "uploads leave LONGER than the ledger says: clipping or bounding does not hold at the run's shape"
        right = f"long uploads leave no longer than they may: {told}"
        found = judged(CLIPPING, noise.too_long(present, self.along), wrong, right, **shown)
        if self.longest is None or found.failed:
            return found
        over = self.longest.norm > 1 + self.longest.rounding + TOLERANCE
        facts = {**shown, "longest": self.longest.norm}
        units = f"{self.longest.norm:.4f} of the limit", "1 of the limit"
        return Check(CLIPPING, wrong if over else right, *units, found.p, over, facts=facts)

    def _seen(self, values: Tensor) -> Seen:
        return Seen(values, self.claim, self.layout, self.numbers)

    def _low_bits(self, present: Seen, absent: Seen, shown: dict[str, object]) -> Check:
        if self.claim.grid is None:
            return not_tried(LOW_BITS, "the mechanism says no grid on which its numbers lie")
        if not self.numbers.full and self.numbers.name != "float32":
            return not_tried(LOW_BITS, f"numbers travel in {self.numbers.name}, which has none of these bits")
        off = noise.off_grid(present) + noise.off_grid(absent)
        if off:
            means = f"{off:,} numbers are NOT on the grid that the ledger names: their last bits can tell the upload"
            return Check(LOW_BITS, means, f"{off:,} off the grid", "0 off the grid", failed=True, facts=shown)
        return judged(
            LOW_BITS,
            noise.uneven_bits(absent),
            "all numbers are on the ledger's grid, but their lowest bits are NOT even: they may tell the upload",
            f"all numbers are on the ledger's grid (steps of {self.claim.grid:.3g}), with even lowest bits",
            **shown,
        )


def play_full(mechanism: Mechanism, layout: Layout, claim: Additive, numbers: Numbers, seed: int) -> FullShape:
    """A few releases at the full shape: of canaries of several lengths, and of zeros beside a second party."""
    cells, number = layout.cells, FIRST + seed * 4 * MOST_RELEASES
    once = max(1, min(MOST_RELEASES // len(LENGTHS), MOST_CELLS // (len(LENGTHS) * cells)))
    long = min(once, math.ceil(ENOUGH_ROWS / layout.rows))
    lengths = [LENGTHS[0]] * (long - 1) + list(LENGTHS)
    along = directions(len(lengths), cells, seed, signs=claim.clip is None)
    far = torch.finfo(torch.float32).max / 2**10
    uploads = torch.tensor([[min(length * claim.reach(cells), far)] for length in lengths]) * along
    present = torch.cat([_release(mechanism, layout, x[None], number + place) for place, x in enumerate(uploads)])
    number += len(lengths)
    zeros = torch.zeros(2, cells, dtype=torch.float64)
    times = max(2, min(MOST_RELEASES, math.ceil(ENOUGH_CELLS / (2 * cells))))
    absent = torch.stack([_release(mechanism, layout, zeros, number + place) for place in range(times)])
    longest = None
    if mechanism.event.repeatable:
        inner = mechanism.inner if isinstance(mechanism, ThroughGate) else mechanism
        longest = _longest(inner, layout, claim, uploads[-len(LENGTHS) :], number + times)
    return FullShape(layout, claim, numbers, along, present, absent, longest)


def _longest(mechanism: Mechanism, layout: Layout, claim: Additive, uploads: Tensor, number: int) -> Longest:
    """The longest of some uploads (K, D): noise that can be drawn again is drawn for zeros, and taken off."""
    reach, plain, found = claim.reach(layout.cells), Numbers(dtype=layout.dtype), []
    for place, x in enumerate(uploads):
        with_it, without = (_release(mechanism, layout, y[None], number + place) for y in (x, torch.zeros_like(x)))
        rounding = 0.0  # on the grid, differences are exact
        if layout.dtype is torch.float32:
            rounding = float((claim.rounded(with_it, plain) + claim.rounded(without, plain)).norm())
        found.append(Longest(float((with_it - without).norm()) / reach, rounding / reach))
    return max(found, key=lambda one: one.norm - one.rounding)


def _release(mechanism: Mechanism, layout: Layout, uploads: Tensor, number: int) -> Tensor:
    """(P, D) uploads -> what left, in float64."""
    parties = ["audited", "bystander"][: len(uploads)]
    return layout.join(mechanism(layout.split(uploads), parties, number, WHAT))
