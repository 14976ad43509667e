"""A share between 0 and 1: the logistic loss with fractions as targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.tasks import Classes, Read, Task, flags, numbers
from colonnade.tasks.base import Array
from colonnade.tasks.prox import prox_logistic
from colonnade.tasks.reading import cells_of, no_classes


@dataclass(frozen=True)
class Share(Task):
    """Truth is (N, 1) numbers from 0 to 1; outputs are log odds."""

    name: ClassVar[str] = "share"
    words: ClassVar[str] = "share"
    metric: ClassVar[str] = "rmse"
    metrics: ClassVar[tuple[str, ...]] = ("rmse", "mae", "r2")

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """One column."""
        no_classes(classes, cls.words)
        y = cells_of(seen, cls.words)
        if y.shape[1] != 1 or bool(((y < 0) | (y > 1)).any()):
            raise DataError(f"a share needs one number from 0 to 1 per row; got {y.min():g} to {y.max():g}")
        return Read(y, cls(1))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """log(1 + e^o) - y o."""
        return flags.losses(outputs, targets)

    def mean(self, outputs: Tensor) -> Tensor:
        """The expected share."""
        return outputs.sigmoid()

    def spread(self, outputs: Tensor) -> Tensor:
        """p (1 - p)."""
        return flags.spread(outputs)

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """The z-step of the logistic loss."""
        return prox_logistic(total, dual, targets, rho)

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The mean squared error of the shares."""
        return {"batch_mse": (total.sigmoid() - targets).double().square().mean()}

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The expected shares; it is never sure of one."""
        return outputs.sigmoid(), torch.zeros_like(outputs[:, 0])

    def decide(self, outputs: Tensor) -> Array:
        """Expected shares (B,)."""
        return numbers.told(self.mean(outputs))

    def probabilities(self, outputs: Tensor) -> Array:
        """There are none."""
        raise numbers.no_probabilities(self.words)

    def constant(self, shares: Tensor) -> Tensor:
        """Its log odds."""
        return flags.log_odds(shares)

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """R2."""
        return numbers.r2_of_each(self.mean(outputs), truth)

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """The third its share is in."""
        return numbers.thirds(truth)
