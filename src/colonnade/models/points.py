"""Points: log odds that people can add up.

    score = offset + factor ln(odds),    factor = pdo / ln 2,    odds = non-events to events

`odds` to one at `base_score` points, twice the odds at `pdo` points more. High scores mean that the event is unlikely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from colonnade.errors import ConfigError


@dataclass(frozen=True)
class Scale:
    """What points mean."""

    base_score: float = 600.0
    odds: float = 50.0  # non-events to one event, at base_score points
    pdo: float = 20.0  # points that double the odds

    def __post_init__(self) -> None:
        for name, value in (("odds", self.odds), ("pdo", self.pdo)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} = {value!r}: needed a number above 0")
        if not math.isfinite(self.base_score):
            raise ConfigError(f"base_score = {self.base_score!r}: needed a number")

    @property
    def factor(self) -> float:
        """Points for one unit of log odds."""
        return self.pdo / math.log(2)

    @property
    def offset(self) -> float:
        """Points where the odds are even."""
        return self.base_score - self.factor * math.log(self.odds)

    def base_points(self, constant: float) -> int:
        """What every row has before anybody adds points; `constant`: its log odds of the event."""
        return round(self.offset - self.factor * constant)

    def bin_points(self, weight: Tensor, woe: Tensor) -> Tensor:
        """Whole points in float64 of bins with evidence `woe`; `weight` is its weight in the log odds of the event."""
        return (-self.factor * weight.double() * woe.double()).round()
