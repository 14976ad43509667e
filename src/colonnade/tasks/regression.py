"""regression: one or more numbers per row. Half the squared error; outputs are the numbers, on a common scale.

loss = (o - y)^2 / 2        mean = o
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from colonnade.tasks import numbers
from colonnade.tasks.base import Array, Classes, Family, Pictures, Read, Scaling, Task
from colonnade.tasks.prox import prox_squared
from colonnade.tasks.reading import cells_of, no_classes


@final
@dataclass(frozen=True)
class Regression(Task):
    """Truth is (N, K) numbers; training sees them with mean 0 and deviation 1 over its rows."""

    name: ClassVar[str] = "regression"
    words: ClassVar[str] = "regression"
    metric: ClassVar[str] = "r2"
    metrics: ClassVar[tuple[str, ...]] = ("r2", "rmse", "mae")
    family: ClassVar[Family] = "normal"
    pictures: ClassVar[Pictures] = "numbers"

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """One column per number."""
        no_classes(classes, cls.words)
        y = cells_of(seen, cls.words)
        numbers.check_squares(y)
        return Read(y, cls(y.shape[1]))

    @classmethod
    def several(cls) -> bool:
        """One column per number."""
        return True

    # -- training -----------------------------------------------------------------------------

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Half the squared error."""
        return (outputs - targets).square() / 2

    def mean(self, outputs: Tensor) -> Tensor:
        """The outputs themselves."""
        return outputs

    def spread(self, outputs: Tensor) -> Tensor:
        """One."""
        return torch.ones_like(outputs)

    def curvature_of(self, gap: Tensor) -> Tensor:
        """One, whatever the targets are."""
        return torch.ones_like(gap)

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """A weighted mean."""
        return prox_squared(total, dual, targets, rho)

    def scaling(self, values: Tensor) -> Scaling:
        """Mean and deviation of the training rows."""
        shift, spread = values.mean(dim=0), values.std(dim=0, unbiased=False)
        scale = torch.where(spread > 0, spread, 1.0)
        return Scaling(shift, scale, shift, scale)

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The mean squared error in units of the targets, which have deviation 1 over the training rows."""
        return {"batch_mse": (total - targets).double().square().mean()}

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs; it is never sure of a number."""
        return outputs.clone(), torch.zeros_like(outputs[:, 0])

    # -- answers ------------------------------------------------------------------------------

    def decide(self, outputs: Tensor) -> Array:
        """The numbers (B,), or (B, K)."""
        return numbers.told(outputs)

    def probabilities(self, outputs: Tensor) -> Array:
        """There are none."""
        raise numbers.no_probabilities(self.words)

    # -- how good -----------------------------------------------------------------------------

    def constant(self, shares: Tensor) -> Tensor:
        """The means."""
        return shares.double()

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """R2 of each number."""
        return numbers.r2_of_each(outputs, truth)

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """The third its number is in."""
        return numbers.thirds(truth)
