"""multilabel: any of K labels per row. Logistic loss of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.tasks import flags
from colonnade.tasks.base import Array, Classes, Read, Task
from colonnade.tasks.prox import prox_logistic
from colonnade.tasks.reading import cells_of, no_classes


@final
@dataclass(frozen=True)
class Multilabel(Task):
    """Truth is (N, K) zeros and ones."""

    name: ClassVar[str] = "multilabel"
    words: ClassVar[str] = "multilabel"
    metric: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "auc", "log_loss", "brier", "f1")
    label_noise: ClassVar[Literal["classes", "flags"] | None] = "flags"

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """One column of zeros and ones per label."""
        no_classes(classes, cls.words)
        y = cells_of(seen, cls.words)
        if not bool(((y == 0) | (y == 1)).all()):
            raise DataError(f"a multilabel task needs labels 0 and 1; got values from {y.min():g} to {y.max():g}")
        return Read(y, cls(y.shape[1]))

    @classmethod
    def several(cls) -> bool:
        """One column per label."""
        return True

    # -- training -----------------------------------------------------------------------------

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The logistic loss of each label."""
        return flags.losses(outputs, targets)

    def mean(self, outputs: Tensor) -> Tensor:
        """The probability of each label."""
        return outputs.sigmoid()

    def spread(self, outputs: Tensor) -> Tensor:
        """p (1 - p)."""
        return flags.spread(outputs)

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """Newton's method in a bracket, for each label."""
        return prox_logistic(total, dual, targets, rho)

    def compact(self, values: Tensor) -> Tensor:
        """A byte per label."""
        return values.to(torch.uint8)

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The share of labels that agree with their targets."""
        return flags.notes(total, targets)

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The likelier answer to each label, and the probability of the least sure of them."""
        return flags.pseudo(outputs)

    # -- answers ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, by name or number."""
        return self.names or tuple(range(self.outputs))

    def codes(self, outputs: Tensor) -> Tensor:
        """(B, K): 1 where a label is likelier than not."""
        return (outputs > 0).to(torch.int64)

    def decide(self, outputs: Tensor) -> Array:
        """Zeros and ones (B, K)."""
        return np.asarray(self.codes(outputs).cpu().numpy())

    def probabilities(self, outputs: Tensor) -> Array:
        """Of each label."""
        return np.asarray(self.mean(outputs).cpu().numpy())

    # -- how good -----------------------------------------------------------------------------

    def constant(self, shares: Tensor) -> Tensor:
        """The log odds."""
        return flags.log_odds(shares)

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """Accuracy of each label."""
        return [float(share) for share in flags.right(outputs, truth).double().mean(dim=0)]

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """Whether it has the first label."""
        first = self.classes[0]
        return truth.int().tolist(), [f"without {first}", f"with {first}"]
