"""The game against a secure sum: the coordinator and `colluders` parties against the noise that the others share.

What they learn of an upload is the sum of the honest parties' parts: masks cancel, and what colluders added they take
away again. So the game is that of one party whose noise is the honest parties' together (`HonestSum`). Beside it: does
every party add its share, and each a draw of its own? Do the masks hide the parts, and cancel to the last bit?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.checks import Check, judged, two_sided
from colonnade.audit.claims import Additive, share_of
from colonnade.audit.full_shape import ENOUGH_CELLS, FIRST, MOST_RELEASES
from colonnade.audit.game import WHAT
from colonnade.audit.noise import Seen
from colonnade.audit.shapes import Layout
from colonnade.privacy.around import Around, AroundSum
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Hiding, Mechanism, Opener, Protection
from colonnade.privacy.sealed import Array, Upload
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose
from colonnade.wire.numbers import Numbers

SHARES, MASKS = "shares of the noise", "masks of the sum"
WORD = 64  # bits of a masked number


@dataclass
class HonestSum(Around):
    """What the honest parties add up to, if all but the first upload zeros: one party's upload behind their noise."""

    honest: tuple[str, ...]  # the first is the audited one

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """For each of some games (P, ...), the sum of the honest parties' parts, in float64."""
        count = len(self.honest)
        names = [f"{name} {game}" for game in parties for name in self.honest]
        every = {}
        for name, value in upload.items():
            spread = value.new_zeros(len(parties), count, *value.shape[1:])
            spread[:, 0] = value
            every[name] = spread.flatten(0, 1)
        parts = self.inner(every, names, number, what)
        return {name: part.double().unflatten(0, (len(parties), count)).sum(dim=1) for name, part in parts.items()}


def check_shares(mechanism: Mechanism, parties: Sequence[str], layout: Layout, claim: Additive) -> Check:
    """Whether every party adds as much noise as its share, and a draw of its own; of zeros, at the full shape."""
    own, cells = share_of(claim), layout.cells
    times = max(2, min(MOST_RELEASES, math.ceil(ENOUGH_CELLS / cells)))
    zeros = layout.split(torch.zeros(len(parties), cells, dtype=torch.float64))
    seen = torch.stack([layout.join(mechanism(zeros, parties, FIRST - 1 - n, WHAT)) for n in range(times)])
    inside = replace(layout, dtype=torch.float64)
    exact = Numbers(dtype=torch.float64)  # what a party adds is not rounded

    def tests() -> Iterator[float]:
        for place in range(len(parties)):
            yield from noise.too_small(Seen(seen[:, place], own, inside, exact))
        yield from noise.dependent(seen, inside)

    return judged(
        SHARES,
        tests(),
        "a party adds LESS noise than its share, or no draw of its own",
        f"each of {len(parties)} parties adds its share, and a draw of its own",
        parties=len(parties),
    )


def check_masks(mechanism: Hiding, opener: Opener, parties: Sequence[str], layout: Layout) -> Check:
    """Whether what leaves looks random, and opens to exactly what the parties added."""
    ledger, number, about = Ledger(), 2**20, "audit"
    agreed = {n: Array(sizes[-1], per_row=len(sizes) > 1) for n, sizes in layout.shapes}
    kept = _Kept(mechanism)
    gate = Gate("audit", ledger, agreed, Protection.everywhere(kept))
    ones = torch.ones(len(parties), layout.cells, dtype=torch.float64) / layout.cells
    passed = gate.release(Upload(layout.split(ones)), parties, number, Purpose.TRAIN, layout.rows, about=about)
    sent = {message.sender: decode(message.payload)[1] for message in passed.releases}
    total = opener.total(number, 0, Purpose.TRAIN, about, sent)
    wrong = sum(int((total[name] != value.sum(dim=0)).sum()) for name, value in kept.last.items())
    if wrong:
        return Check(MASKS, "the sum that opens is NOT what the parties added", f"{wrong:,} differ", failed=True)
    words = torch.cat([array.flatten() for arrays in sent.values() for array in arrays.values()])
    both = (words, words ^ (words >> 1))  # bits, and whether neighbours differ: in small numbers they never do
    tosses = (two_sided(int(((w >> bit) & 1).sum()), len(w)) for w in both for bit in range(WORD - 1))
    return judged(
        MASKS,
        tosses,
        "masked numbers are NOT random: a party's part can be read",
        "masked numbers look random bit by bit, and open to exactly what the parties added",
        parties=len(parties),
    )


@dataclass
class _Kept(AroundSum):
    """A mechanism of a sum that remembers what it was asked to hide."""

    last: Mapping[str, Tensor] = field(default_factory=dict)

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> Mapping[str, Tensor]:
        """Of the one inside, and remembered."""
        self.last = {name: value.clone() for name, value in values.items()}
        return self.inner.hide(values, parties, number, part, rows)
