"""Seeded noise, for runs whose hashes are compared. Simulation: whoever knows the seed can take it away again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colonnade.privacy.events import Unit
from colonnade.randomness import stream


@dataclass(frozen=True)
class SeededNoise:
    """Gaussian noise from a named stream per party, drawn in float64: the same in every engine."""

    sigma: float = 0.1
    seed: int = 0
    name: str = "seeded noise (simulation)"
    unit: Unit = Unit.PARTY

    @property
    def parameters(self) -> tuple[tuple[str, float], ...]:
        """What an accountant would need; there is none for noise that can be repeated."""
        return (("sigma", self.sigma),)

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """Values plus noise, one independent draw per party, exchange and array."""
        return {name: value + self._noise(value, parties, number, f"{what}.{name}") for name, value in upload.items()}

    def _noise(self, values: Tensor, parties: Sequence[str], number: int, what: str) -> Tensor:
        shape = values.shape[1:]
        drawn = [stream(self.seed, f"noise {what}", party, number).normal(0, self.sigma, shape) for party in parties]
        return torch.from_numpy(np.stack(drawn)).to(values)
