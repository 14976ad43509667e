"""What training cost one party."""

from __future__ import annotations

import math
from dataclasses import dataclass

from colonnade.privacy.sampled import SampledGaussianEvent


@dataclass(frozen=True)
class Spent:
    """What training cost one party."""

    party: str
    releases: int
    exact: float  # infinite: there is no such figure
    rdp: float
    bare: tuple[tuple[str, int], ...] = ()  # purpose, releases of the party that left without noise
    counted: bool = False  # counts were released, which have an RDP figure only
    row: float = math.inf  # RDP, of one row that changes at all parties (unit ROW), where that is accounted for
    bounded: bool = False
    shift: float = math.inf  # mu of Gaussian releases; infinite: not all of them are
    # It trained at home with noise; `exact` is then the PLD figure of a row.
    sampled: SampledGaussianEvent | None = None

    @property
    def epsilon(self) -> float:
        """The figure that counts; infinite: there is none."""
        return self.rdp if self.counted else self.exact
