"""Plain labels: training sees them as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.federation import Task


@dataclass(frozen=True)
class PlainLabels:
    """Labels without protection."""

    values: Tensor = field(repr=False)  # (N,) classes or (N, K) numbers, on the run's device
    task: Task
    outputs: int

    def targets(self, rows: Tensor, logits: Tensor) -> Tensor:
        """One-hot rows for classes, the numbers themselves otherwise; in the dtype of the logits."""
        return expand(self.values[rows.to(self.values.device)], self.task, self.outputs, logits.dtype)

    def compact(self, rows: Tensor) -> Tensor:
        """One byte per class label where it fits."""
        chosen = self.values[rows.to(self.values.device)]
        if self.task is Task.MULTICLASS:
            return chosen.to(torch.uint8 if self.outputs <= 256 else torch.int32)
        return chosen.to(torch.float32 if self.task is Task.REGRESSION else torch.uint8)


def expand(compact: Tensor, task: Task, outputs: int, dtype: torch.dtype) -> Tensor:
    """Targets (B, K) from compact labels."""
    if task is Task.MULTICLASS:
        return F.one_hot(compact.to(torch.int64), outputs).to(dtype)
    return compact.to(dtype)
