"""count: how often something happened, 0, 1, 2, ... Poisson loss; outputs are logarithms of the expected count.

    loss = exp(o) - y o        mean = exp(o)

Training sees counts divided by their mean over the training rows, so that the first outputs (0) are not far off; the
logarithm of that mean is added to the outputs again. Dividing scales the loss by a constant and changes nothing else.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from colonnade.errors import DataError, DoubtfulData
from colonnade.tasks import numbers
from colonnade.tasks.base import Array, Classes, Family, Pictures, Read, Scaling, Task
from colonnade.tasks.prox import prox_poisson
from colonnade.tasks.reading import cells_of, no_classes


@final
@dataclass(frozen=True)
class Count(Task):
    """Truth is (N, K) numbers from 0: whole ones, or rates of rows whose weight is their exposure."""

    name: ClassVar[str] = "count"
    words: ClassVar[str] = "count"
    metric: ClassVar[str] = "poisson_deviance"
    metrics: ClassVar[tuple[str, ...]] = ("poisson_deviance", "rmse", "mae", "r2")
    family: ClassVar[Family] = "poisson"
    pictures: ClassVar[Pictures] = "counts"

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """One column per count; fractions are taken for rates, with a warning."""
        no_classes(classes, cls.words)
        y = cls._counts(seen)
        if bool((y.sum(dim=0) == 0).any()):
            raise DataError("all counts are 0; there is nothing to learn")
        if bool((y != y.round()).any()):
            warnings.warn(
                f"the labels of a count task have fractions (e.g. {y[y != y.round()][0]:g}) and are taken for rates, "
                "counts per unit of exposure, which belongs into the weights of the rows; for other numbers say "
                'task="regression"',
                DoubtfulData,
                stacklevel=2,
            )
        return Read(y, cls(y.shape[1]))

    def again(self, seen: Array) -> Tensor:
        """Counts of other rows, which may all be 0."""
        return self._counts(seen)

    @classmethod
    def _counts(cls, seen: Array) -> Tensor:
        y = cells_of(seen, cls.words)
        if bool((y < 0).any()):
            raise DataError(
                f"a count task needs numbers from 0; got values from {y.min():g} to {y.max():g}; for other numbers say "
                'task="regression"'
            )
        return y

    @classmethod
    def several(cls) -> bool:
        """One column per count."""
        return True

    # -- training -----------------------------------------------------------------------------

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The Poisson loss, without the terms that no model changes."""
        return outputs.exp() - targets * outputs

    def mean(self, outputs: Tensor) -> Tensor:
        """The expected count."""
        return outputs.exp()

    def spread(self, outputs: Tensor) -> Tensor:
        """The expected count: its variance, too."""
        return outputs.exp()

    def curvature(self, outputs: Tensor) -> Tensor:
        """Half as much again as at these outputs: it grows with them, so that a step towards more would be too long."""
        return 1.5 * outputs.exp()

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """By Wright's omega function."""
        return prox_poisson(total, dual, targets, rho)

    def scaling(self, values: Tensor) -> Scaling:
        """The mean of the training rows; 1 where they are all 0."""
        mean = values.mean(dim=0)
        mean, zero = torch.where(mean > 0, mean, 1.0), torch.zeros_like(mean)
        return Scaling(zero, mean, mean.log(), torch.ones_like(mean))

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The mean squared error of the expected counts, in units of their mean."""
        return {"batch_mse": (total.exp() - targets).double().square().mean()}

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The expected counts; it is never sure of one."""
        return outputs.exp(), torch.zeros_like(outputs[:, 0])

    # -- answers ------------------------------------------------------------------------------

    def decide(self, outputs: Tensor) -> Array:
        """Expected counts (B,), or (B, K)."""
        return numbers.told(self.mean(outputs))

    def probabilities(self, outputs: Tensor) -> Array:
        """There are none."""
        raise numbers.no_probabilities(self.words)

    # -- how good -----------------------------------------------------------------------------

    def constant(self, shares: Tensor) -> Tensor:
        """Their logarithms."""
        return shares.double().clamp(min=1e-12).log()

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """R2 of each count."""
        return numbers.r2_of_each(self.mean(outputs), truth)

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """The third its number is in."""
        return numbers.thirds(truth)
