"""Mechanisms for tests: the gate knows only the protocol, so noise and rounding can be tried before they exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from colonnade.privacy.events import OtherEvent
from colonnade.privacy.mechanism import Mechanism
from colonnade.randomness import stream

Upload = Mapping[str, Tensor]
ROUNDING, CHAIN = OtherEvent("rounding for tests"), OtherEvent("chain for tests")


@dataclass(frozen=True)
class Noise:
    """Gaussian noise from a named stream per party, drawn in float64: the same in every engine."""

    sigma: float = 0.1
    seed: int = 0

    @property
    def event(self) -> OtherEvent:
        return OtherEvent("noise for tests", (("sigma", self.sigma),))

    def __call__(self, upload: Upload, parties: Sequence[str], number: int, what: str) -> Upload:
        return {name: value + self._noise(value, parties, number, f"{what}.{name}") for name, value in upload.items()}

    def _noise(self, values: Tensor, parties: Sequence[str], number: int, what: str) -> Tensor:
        shape = values.shape[1:]
        drawn = [stream(self.seed, f"noise {what}", party, number).normal(0, self.sigma, shape) for party in parties]
        return torch.from_numpy(np.stack(drawn)).to(values)


@dataclass(frozen=True)
class Rounding:
    """Round to multiples of `grid`; 0 means to float16 and back."""

    grid: float = 0.0
    event: OtherEvent = ROUNDING

    def __call__(self, upload: Upload, parties: Sequence[str], number: int, what: str) -> Upload:
        return {name: self._rounded(value) for name, value in upload.items()}

    def _rounded(self, values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        if self.grid:
            return (values / self.grid).round() * self.grid
        return values.to(torch.float16).to(values.dtype)


@dataclass(frozen=True)
class Chain:
    """One mechanism after the other."""

    parts: tuple[Mechanism, ...]
    event: OtherEvent = CHAIN

    def __call__(self, upload: Upload, parties: Sequence[str], number: int, what: str) -> Upload:
        return reduce(lambda v, part: part(v, parties, number, what), self.parts, upload)
