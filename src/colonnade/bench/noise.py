"""Seeded noise, for runs whose hashes are compared. Simulation: whoever knows the seed can take it away again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from colonnade.privacy.events import OtherEvent
from colonnade.randomness import stream


@dataclass(frozen=True)
class SeededNoise:
    """Gaussian noise from a named stream per party, drawn in float64: the same in every engine."""

    sigma: float = 0.1
    seed: int = 0

    @cached_property
    def event(self) -> OtherEvent:
        """What the ledger says of it; there is no accountant for noise that can be repeated."""
        return OtherEvent("seeded noise (simulation)", (("sigma", self.sigma),))

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """Values plus noise, one independent draw per party, round and array."""
        return {name: value + self._noise(value, parties, number, f"{what}.{name}") for name, value in upload.items()}

    def _noise(self, values: Tensor, parties: Sequence[str], number: int, what: str) -> Tensor:
        shape = values.shape[1:]
        drawn = [stream(self.seed, f"noise {what}", party, number).normal(0, self.sigma, shape) for party in parties]
        return torch.from_numpy(np.stack(drawn)).to(values)
