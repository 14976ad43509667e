"""Plain labels: training sees them as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.federation import Task


@dataclass(frozen=True)
class PlainLabels:
    """Labels without protection; numbers to predict are put on a common scale, as columns are."""

    values: Tensor = field(repr=False)  # (N,) classes or (N, K) numbers, on the run's device
    task: Task
    outputs: int
    shift: Tensor | None = field(default=None, repr=False)  # (K,), regression only
    scale: Tensor | None = field(default=None, repr=False)

    @classmethod
    def of(cls, values: Tensor, task: Task, outputs: int, train: Tensor) -> PlainLabels:
        """Labels of a federation; a regression target's mean and deviation come from its training rows."""
        if task is not Task.REGRESSION:
            return cls(values, task, outputs)
        rows = values[train.to(values.device)]
        spread = rows.std(dim=0, unbiased=False)
        return cls(values, task, outputs, rows.mean(dim=0), torch.where(spread > 0, spread, 1.0))

    def targets(self, rows: Tensor, logits: Tensor) -> Tensor:
        """One-hot rows for classes, the (scaled) numbers otherwise; in the dtype of the logits."""
        return expand(self._chosen(rows), self.task, self.outputs, logits.dtype)

    def compact(self, rows: Tensor) -> Tensor:
        """One byte per class label where it fits."""
        chosen = self._chosen(rows)
        if self.task is Task.MULTICLASS:
            return chosen.to(torch.uint8 if self.outputs <= 256 else torch.int32)
        return chosen.to(torch.float32 if self.task is Task.REGRESSION else torch.uint8)

    def _chosen(self, rows: Tensor) -> Tensor:
        chosen = self.values[rows.to(self.values.device)]
        if self.shift is None or self.scale is None:
            return chosen
        return (chosen - self.shift) / self.scale

    def state(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What prediction needs to give numbers on their own scale again."""
        if self.shift is None or self.scale is None:
            return {}
        return {"target.shift": self.shift.to(dtype), "target.scale": self.scale.to(dtype)}


def expand(compact: Tensor, task: Task, outputs: int, dtype: torch.dtype) -> Tensor:
    """Targets (B, K) from compact labels."""
    if task is Task.MULTICLASS:
        return F.one_hot(compact.to(torch.int64), outputs).to(dtype)
    return compact.to(dtype)
