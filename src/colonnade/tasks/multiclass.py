"""multiclass: one of K classes per row. Cross entropy; outputs are logits of a softmax.

loss = log sum_k exp(o_k) - sum_k y_k o_k        mean = softmax(o)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.errors import DataError
from colonnade.tasks.base import Array, Classes, Family, Pictures, Read, Task
from colonnade.tasks.prox import prox_cross_entropy
from colonnade.tasks.reading import as_labels, check_one_column, codes_of, kind_of, named, numbered, numeric, text_of


@final
@dataclass(frozen=True)
class Multiclass(Task):
    """Truth is (N,) class numbers 0..K-1."""

    name: ClassVar[str] = "multiclass"
    words: ClassVar[str] = "classes"
    metric: ClassVar[str] = "accuracy"
    loss_metric: ClassVar[str] = "log_loss"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "balanced_accuracy", "auc", "log_loss", "brier", "f1")
    exclusive: ClassVar[bool] = True
    one_class: ClassVar[bool] = True
    pictures: ClassVar[Pictures] = "classes"
    family: ClassVar[Family] = "multinomial"
    label_noise: ClassVar[Literal["classes", "flags"] | None] = "classes"

    @classmethod
    def read(cls, seen: Array, classes: Classes) -> Read:
        """Classes that are named, counted, or found in the labels, in sorted order."""
        check_one_column(seen, cls.words)
        if isinstance(classes, int):
            return Read(numbered(seen, classes), cls(classes))
        if classes is not None:
            names = named(classes)
            return Read(codes_of(seen, names), cls(len(names), names, kind_of(seen, names)))
        distinct = np.unique(seen)
        _check_classes(seen, distinct)
        names = tuple(text_of(distinct))
        values = torch.from_numpy(np.searchsorted(distinct, seen).astype(np.int64))
        plain = numeric(seen) and names == tuple(map(str, range(len(names))))
        return Read(values, cls(len(names)) if plain else cls(len(names), names, kind_of(seen, names)))

    # -- training -----------------------------------------------------------------------------

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-y log p."""
        return -(targets * outputs.log_softmax(dim=-1))

    def mean(self, outputs: Tensor) -> Tensor:
        """The probabilities."""
        return outputs.softmax(dim=-1)

    def spread(self, outputs: Tensor) -> Tensor:
        """p; classes pull on each other by -p p^T besides."""
        return self.mean(outputs)

    def curvature(self, outputs: Tensor) -> Tensor:
        """p (1 - p) K/(K - 1), since the outputs of all classes move together (Friedman et al., 2000)."""
        p = self.mean(outputs)
        return self._together(p * (1 - p))

    def curvature_of(self, gap: Tensor) -> Tensor:
        """The gap is 1 - p or - p."""
        return self._together(gap.abs() * (1 - gap.abs()))

    def _together(self, spread: Tensor) -> Tensor:
        return spread * (self.outputs / max(1, self.outputs - 1))

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """Newton's method on every row."""
        return prox_cross_entropy(total, dual, targets, rho)

    def smoothed(self, targets: Tensor, smoothing: float) -> Tensor:
        """A share of `smoothing` spread over all classes."""
        return (1 - smoothing) * targets + smoothing / targets.shape[1] if smoothing else targets

    def compact(self, values: Tensor) -> Tensor:
        """One byte per row where the classes fit."""
        return values.to(torch.uint8 if self.outputs <= 256 else torch.int32)

    def expand(self, compact: Tensor, dtype: torch.dtype) -> Tensor:
        """From classes (B,), or from weights of the classes (B, K)."""
        if compact.dim() == 1:
            return F.one_hot(compact.to(torch.int64), self.outputs).to(dtype)
        weights = compact.to(dtype)
        return weights / weights.sum(dim=1, keepdim=True).clamp(min=1)  # a row that was never filled stays zero

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The share of rows whose likeliest class is that of the targets."""
        return {"batch_accuracy": (total.argmax(dim=1) == targets.argmax(dim=1)).double().mean()}

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest class, and its probability."""
        sure, best = outputs.softmax(dim=1).max(dim=1)
        return torch.zeros_like(outputs).scatter_(1, best[:, None], 1.0), sure

    @property
    def label_distance(self) -> float:
        """Another class: one goes down, one goes up."""
        return 2.0

    # -- answers ------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Any, ...]:
        """As the labels were, or 0..K-1."""
        return as_labels(self.names, self.kind) if self.names else tuple(range(self.outputs))

    def codes(self, outputs: Tensor) -> Tensor:
        """The likeliest class."""
        return outputs.argmax(dim=1)

    def decide(self, outputs: Tensor) -> Array:
        """The likeliest class, as the labels were."""
        names: Array = np.asarray(self.classes)
        return np.asarray(names[self.codes(outputs).cpu().numpy()])

    def probabilities(self, outputs: Tensor) -> Array:
        """The softmax."""
        return np.asarray(self.mean(outputs).cpu().numpy())

    # -- how good -----------------------------------------------------------------------------

    def shares(self, truth: Tensor, weights: Tensor | None = None) -> Tensor:
        """How often each class occurs."""
        heavy = None if weights is None else weights.to(truth.device)
        counts = torch.bincount(truth.to(torch.int64), heavy, minlength=self.outputs).double()
        return counts / (max(1, len(truth)) if heavy is None else heavy.sum())

    def constant(self, shares: Tensor) -> Tensor:
        """Their logarithms: the softmax gives the shares again."""
        return shares.double().clamp(min=1e-12).log()

    def known(self, truth: Tensor, shares: Tensor) -> str:
        """Classes that only rows to test on have: a model cannot know them."""
        rows = torch.bincount(truth, minlength=len(shares))
        missing = ((shares == 0) & (rows > 0)).nonzero().flatten().tolist()
        if not missing:
            return ""
        return (
            f"{int(rows[missing].sum())} test rows have classes that no training row has (number "
            f"{', '.join(map(str, missing))}): the model cannot know them. Split the rows differently."
        )

    def by_kind(self, outputs: Tensor, truth: Tensor) -> list[float]:
        """Accuracy on the rows of each class; 0 where there are none."""
        right = (outputs.argmax(dim=1) == truth).double()
        rows = [right[truth == c] for c in range(self.outputs)]
        return [float(one.mean()) if len(one) else 0.0 for one in rows]

    def kinds(self, truth: Tensor) -> tuple[list[int], list[str]]:
        """Its class."""
        return truth.int().tolist(), [str(name) for name in self.classes]


def _check_classes(seen: Array, distinct: Array) -> None:
    if numeric(seen) and not bool((distinct == np.round(distinct)).all()):
        raise DataError(
            f"class labels must be whole numbers or text; got numbers with fractions from {distinct[0]:g} to "
            f'{distinct[-1]:g}; for a number to predict say task="regression"'
        )
    if len(distinct) < 2:
        raise DataError(f"the labels have one class only ({text_of(distinct)[0]!r}); there is nothing to learn")
    if len(distinct) == len(seen) and len(seen) > 2:
        raise DataError(f"every one of the {len(seen)} rows has a class of its own; is this an id, or a number?")
