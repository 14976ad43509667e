"""A linear local model that goes halfway to what ridge would solve."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from colonnade.models.encoders import LocalSettings
from colonnade.models.ridge import Ridge


class Halfway(Ridge):
    """Ridge, but each round takes half of its step."""

    name: ClassVar[str] = "halfway"

    def __init__(self, settings: LocalSettings) -> None:
        super().__init__(settings.ridge)

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """Half of the way from the last weights to the solved ones."""
        before = self.weight.clone()
        super().approach(x, target, weight, effort)
        self.weight = (before + self.weight) / 2
