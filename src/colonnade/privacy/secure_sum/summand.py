"""A party's part of a secure sum, as mechanisms of the gate; and what the coordinator opens it with.

    gate      values = mechanism(upload)          clipped, noised, on the grid: what the party remembers of it
              sent   = mechanism.hide(values)     whole numbers under the masks of all other parties: what leaves
    reader    opener.total(...)                   the sum over all parties, and nothing else

`Summand` has no noise: it hides the parts, not the sum. `NoisySummand` adds each party's share of the noise, so that
the sum is a Gaussian mechanism of multiplier sigma, also towards whoever knows the shares of `colluders` parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import Diverged
from colonnade.privacy.events import PlainEvent
from colonnade.privacy.gaussian import GaussianEvent, NoiseSource
from colonnade.privacy.grid import check_scale, clip_factors
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.secure_sum.event import SumEvent
from colonnade.privacy.secure_sum.fixed_point import Cells, Floats, Grid, from_wire, to_wire
from colonnade.privacy.secure_sum.masks import Masker
from colonnade.privacy.secure_sum.roster import Address, Masked, Roster
from colonnade.privacy.secure_sum.total import open_total
from colonnade.wire.messages import Purpose


@dataclass(frozen=True)
class Summand:
    """Values as whole numbers under masks."""

    grid: Grid
    maskers: Mapping[str, Masker] = field(repr=False)  # of the parties that upload through this gate
    inner: Mechanism | None = None  # what protects the values before they are added
    known: int = 0  # parties that may tell others what they added; of no consequence without noise

    @cached_property
    def event(self) -> SumEvent:
        """How many are added, and what was done to them before."""
        parties = float(self.grid.parties)
        if self.inner is None:
            return SumEvent(PlainEvent(), parties)
        of = self.inner.event
        return SumEvent(of, parties, float(self.known), unit=of.unit)

    @property
    def roster(self) -> str:
        """The digest of who adds, which every message names."""
        return next(iter(self.maskers.values())).roster.digest

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """The (P, B, ...) arrays in float64, on the grid."""
        if self.inner is not None:
            upload = self.inner(upload, parties, number, what)
        flat = {name: value.detach().cpu().double().numpy() for name, value in upload.items()}
        made = [self._one({n: v[i] for n, v in flat.items()}, p, number, what) for i, p in enumerate(parties)]
        return {name: torch.from_numpy(np.stack([m[name] for m in made])) for name in upload}

    def _one(self, upload: Mapping[str, Floats], party: str, number: int, what: str) -> dict[str, Floats]:
        if any(np.abs(value).max(initial=0.0) > self.grid.largest for value in upload.values()):
            raise Diverged(party, "upload")
        return {name: self._floats(self.grid.encode(value)) for name, value in upload.items()}

    def _floats(self, cells: Cells) -> Floats:
        floats: Floats = cells.view(np.int64) * np.float64(self.grid.step)  # exact: a power of two
        return floats

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> dict[str, Tensor]:
        """What leaves: one masked array per party."""
        out = {}
        for name, value in values.items():
            cells = (value.numpy() / self.grid.step).astype(np.int64).view(np.uint64)
            at = Address(number, part, name, rows)
            out[name] = torch.stack([to_wire(self.maskers[p].mask(cells[i], at).cells) for i, p in enumerate(parties)])
        return out


@dataclass(frozen=True)
class NoisySummand(Summand):
    """Clipped values with this party's share of the noise, under masks."""

    clip: float = 1.0
    sigma: float = 1.0  # of the sum, in units of the clipping norm
    colluders: int = 1
    source: NoiseSource = field(kw_only=True)

    def __post_init__(self) -> None:
        check_scale("clip", self.clip)
        check_scale("a share of the noise", self.grid.deviation)

    @cached_property
    def event(self) -> SumEvent:
        """Sigma is that of the sum, towards `colluders` parties that tell their shares."""
        noise = GaussianEvent(self.clip, self.sigma, self.source.simulated, self.grid.step)
        return SumEvent(noise, float(self.grid.parties), float(self.colluders))

    def _one(self, upload: Mapping[str, Floats], party: str, number: int, what: str) -> dict[str, Floats]:
        widths = [value.size for value in upload.values()]
        flat = torch.from_numpy(np.concatenate([value.reshape(1, -1) for value in upload.values()], axis=1))
        noise = self.source.normals([party], number, what, sum(widths), self.grid.deviation)[0]
        clipped = flat.mul_(clip_factors(flat, self.clip))[0]
        parts = zip(upload.items(), torch.split(clipped, widths), torch.split(noise, widths), strict=True)
        return {
            name: self._floats(self.grid.encode(c.numpy().reshape(value.shape), n.numpy().reshape(value.shape)))
            for (name, value), c, n in parts
        }


@dataclass(frozen=True)
class Opener:
    """What the coordinator opens sums with: who adds, on which grid for which purpose. No secret is in it."""

    roster: Roster
    training: Grid
    evaluating: Grid  # evaluation and prediction

    def total(
        self, number: int, part: int, purpose: Purpose, rows: str, received: Mapping[str, Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        """The sum of all parties' uploads, in float64; `WireError` if somebody is missing or masks do not cancel."""
        grid = self.training if purpose is Purpose.TRAIN else self.evaluating
        names = next(iter(received.values()), {})
        totals = {}
        for name in names:
            at = Address(number, part, name, rows)
            masked = {p: Masked(p, at, self.roster.digest, from_wire(arrays[name])) for p, arrays in received.items()}
            totals[name] = torch.from_numpy(open_total(self.roster, grid, at, masked))
        return totals
