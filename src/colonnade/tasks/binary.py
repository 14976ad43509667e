"""binary: yes or no. Logistic loss; one output, the logit of a yes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.tasks.base import Array, Classes, Pictures, Read
from colonnade.tasks.flags import Flags, right
from colonnade.tasks.reading import AS_NAMED, as_labels, codes_of, kind_of, named, no_and_yes, numeric


@final
@dataclass(frozen=True)
class Binary(Flags):
    """Truth is (N, 1) zeros and ones; `names` are (no, yes)."""

    name: ClassVar[str] = "binary"
    words: ClassVar[str] = "yes/no"
    metric: ClassVar[str] = "auc"
    former_metric: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = (
        "auc", "accuracy", "balanced_accuracy", "average_precision", "log_loss", "brier", "ks", "f1",
    )  # fmt: skip
    one_class: ClassVar[bool] = True
    pictures: ClassVar[Pictures] = "scores"

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """Two classes, named (no, yes) or recognised by `no_and_yes`."""
        if seen.ndim == 2:
            raise DataError(
                f"a yes/no task needs one label column; got {seen.shape[1]}. Choose one with `labels=`, or set "
                'task="multilabel".'
            )
        if isinstance(classes, int):
            if classes != 2:
                raise ConfigError(f"classes = {classes}: a yes/no task has 2")
            classes = ("0", "1")
        names, why = (named(classes), AS_NAMED) if classes is not None else no_and_yes(seen)
        if len(names) != 2:
            raise ConfigError(f"classes = {list(names)}: a yes/no task has 2, first the no and then the yes")
        values = codes_of(seen, names).to(torch.float64)[:, None]
        told = () if names == ("0", "1") and numeric(seen) else names
        return Read(values, cls(1, told, kind_of(seen, told), why))

    # -- training -----------------------------------------------------------------------------

    def by_class(self, targets: Tensor) -> Tensor:
        """(B, 2): no, yes."""
        return torch.cat([1 - targets, targets], dim=1)

    # -- answers ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        """(no, yes), as the labels were; or 0 and 1."""
        return as_labels(self.names, self.kind) if self.names else (0, 1)

    def moved(self, outputs: Tensor, threshold: float) -> Tensor:
        """The log odds, less those of the threshold."""
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold < 1:
            raise ConfigError(f"threshold = {threshold!r}: needed a probability between 0 and 1, e.g. 0.3")
        return outputs.double() - math.log(threshold / (1 - threshold))

    def decide(self, outputs: Tensor) -> Array:
        """The likelier class, as the labels were."""
        names: Array = np.asarray(self.classes)
        return np.asarray(names[self.codes(outputs).cpu().numpy().reshape(len(outputs))])

    def probabilities(self, outputs: Tensor) -> Array:
        """(B, 2): no, yes."""
        yes = self.mean(outputs).cpu()
        return np.asarray(torch.cat([1 - yes, yes], dim=1).numpy())

    # -- how good -----------------------------------------------------------------------------

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """Accuracy on the rows of each class."""
        hits, yes = right(outputs, truth).double()[:, 0], truth[:, 0]
        rows = [hits[yes == c] for c in (0, 1)]
        return [float(one.mean()) if len(one) else 0.0 for one in rows]

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """Its class."""
        return truth.int().tolist(), [str(name) for name in self.classes]
