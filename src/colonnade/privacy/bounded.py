"""Bounded numbers with Gaussian noise (VAFL): no norm is clipped, every number is kept within a bound instead.

    upload' = clamp(upload, -B, B) + N(0, s^2) in every cell

An upload of b rows and d numbers per row has norm B sqrt(b d) at most, so one release is a Gaussian mechanism of
multiplier s / (B sqrt(b d)): much noise, or a large epsilon. The ledger knows B, s, d and the rows of each release.
What leaves is on a grid, as in `grid.py`: bounding is exact, and cutting towards zero keeps to the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from colonnade.privacy.added import AddedNoise
from colonnade.privacy.events import Event, Hides, Kind, positive
from colonnade.privacy.gaussian import NoiseSource, SystemNoise, check_width
from colonnade.privacy.grid import check_noise, check_scale, step_of
from colonnade.privacy.side_by_side import PIECE


@dataclass(frozen=True)
class BoundedGaussianEvent(Event):
    """Every number of an upload kept within a bound, and Gaussian noise on it."""

    kind: ClassVar[Kind] = Kind(
        "bounded gaussian", "every number kept within a bound, then Gaussian noise on it", Hides.COLUMNS
    )
    bounded: ClassVar[bool] = True

    bound: float
    deviation: float  # of the noise of a number
    width: float  # numbers per row
    simulated: bool = False  # the noise can be drawn again
    grid: float | None = None  # step of what leaves; None: an earlier version, which added in floating point

    def __post_init__(self) -> None:
        positive(bound=self.bound, deviation=self.deviation, width=self.width)

    def precision(self, rows: int) -> float:
        """1/sigma^2, of the norm of an upload whose numbers are all at the bound."""
        return rows * self.width * (self.bound / self.deviation) ** 2

    @property
    def off_grid(self) -> bool:
        """Whether an earlier version added the noise."""
        return self.grid is None

    @property
    def before_grids(self) -> BoundedGaussianEvent:
        """The same without a grid."""
        return replace(self, grid=None)


@dataclass(frozen=True)
class BoundedGaussian:
    """The mechanism; `deviation` is the noise of a number itself, not in units of anything."""

    bound: float
    deviation: float
    width: int  # numbers that a party sends per row
    source: NoiseSource = field(default_factory=SystemNoise)

    def __post_init__(self) -> None:
        check_scale("noise", self.deviation)
        check_noise(self.deviation, self.bound)

    @cached_property
    def event(self) -> BoundedGaussianEvent:
        """What the ledger says of its releases."""
        drawn = (self.source.simulated, step_of(self.deviation))
        return BoundedGaussianEvent(self.bound, self.deviation, float(self.width), *drawn)

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """The (P, B, d) arrays bounded and noised in float64, every party with a draw of its own."""
        check_width(upload, self.width)

        def bounded(cells: Tensor) -> Tensor:
            for some in cells.split(PIECE, dim=1):
                some.clamp_(-self.bound, self.bound)
            return cells.new_ones(len(cells), 1)

        return self._noise.add(upload, parties, number, what, bounded)

    @cached_property
    def _noise(self) -> AddedNoise:
        return AddedNoise(self.source, self.deviation)
