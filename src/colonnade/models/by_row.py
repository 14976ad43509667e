"""What a cohort needs to train row by row with noise; how much, and from where, is not the models' business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class RowTraining(Protocol):
    """Draws of rows, the norm of a row's gradient, and noise on sums of such gradients."""

    @property
    def batch(self) -> float:
        """Rows that a step draws on average: what sums are divided by, whatever was drawn."""
        ...

    @property
    def steps(self) -> int:
        """That a party takes in the whole run, at most: what was promised is counted for these."""
        ...

    def norm(self, cells: int) -> float:
        """To which the gradient of a row is cut, where a model has so many numbers that learn."""
        ...

    def draw(self, parties: Sequence[str], number: int, step: int) -> Tensor:
        """(P, R) which of the training rows each party takes for a step of a round; nobody else knows."""
        ...

    def protect(self, sums: Tensor, parties: Sequence[str], number: int, step: int) -> Tensor:
        """(P, cells) sums of clipped gradients in float64 with noise, on the CPU."""
        ...
