"""multilabel: any of K labels per row. Logistic loss of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from torch import Tensor

from colonnade.errors import DataError
from colonnade.tasks.base import Array, Classes, Pictures, Read
from colonnade.tasks.flags import Flags, right
from colonnade.tasks.reading import cells_of, no_classes


@final
@dataclass(frozen=True)
class Multilabel(Flags):
    """Truth is (N, K) zeros and ones."""

    name: ClassVar[str] = "multilabel"
    words: ClassVar[str] = "multilabel"
    metric: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "auc", "log_loss", "brier", "f1")
    pictures: ClassVar[Pictures] = "labels"

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

    # -- answers ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, by name or number."""
        return self.names or tuple(range(self.outputs))

    def decide(self, outputs: Tensor) -> Array:
        """Zeros and ones (B, K)."""
        return np.asarray(self.codes(outputs).cpu().numpy())

    def probabilities(self, outputs: Tensor) -> Array:
        """Of each label."""
        return np.asarray(self.mean(outputs).cpu().numpy())

    # -- how good -----------------------------------------------------------------------------

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """Accuracy of each label."""
        return [float(share) for share in right(outputs, truth).double().mean(dim=0)]

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """Whether it has the first label."""
        first = self.classes[0]
        return truth.int().tolist(), [f"without {first}", f"with {first}"]
