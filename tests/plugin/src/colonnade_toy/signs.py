"""Signs of a noised upload: whatever is computed from it costs no more than the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from colonnade.privacy.events import Event, Hides, Kind
from colonnade.privacy.gaussian import Gaussian


@dataclass(frozen=True)
class SignsEvent(Event):
    """What the ledger says of it."""

    kind: ClassVar[Kind] = Kind("toy signs", "clipped, Gaussian noise, then signs only", Hides.COLUMNS)

    sigma: float
    simulated: bool

    def precision(self, rows: int) -> float:
        """What the accountants of Gaussian noise add up."""
        return self.sigma**-2


@dataclass(frozen=True)
class Signs:
    """-1, 0 or 1 in place of every number."""

    noise: Gaussian

    @cached_property
    def event(self) -> SignsEvent:
        """What the ledger says of its releases."""
        return SignsEvent(self.noise.sigma, self.noise.source.simulated)

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """Of the (P, B, ...) arrays."""
        return {name: value.sign() for name, value in self.noise(upload, parties, number, what).items()}
