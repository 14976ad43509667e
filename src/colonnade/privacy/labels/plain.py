"""Plain labels: training sees them as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.federation import Task
from colonnade.privacy.labels import Parameters, Visit


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

    @property
    def mechanism(self) -> str:
        """No protection, and the ledger says so."""
        return "none"

    @property
    def parameters(self) -> Parameters:
        """Nothing to say of it."""
        return ()

    @property
    def epsilon(self) -> float | None:
        """None: there is no bound on what the labels' users learn."""
        return None

    def targets(self, turn: Visit, logits: Tensor) -> Tensor:
        """One-hot rows for classes, the (scaled) numbers otherwise; in the dtype of the logits."""
        return expand(self._chosen(turn.rows), self.task, self.outputs, logits.dtype)

    def held_out(self, rows: Tensor) -> Tensor:
        """The same for rows to validate on."""
        return expand(self._chosen(rows), self.task, self.outputs, torch.float64)

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
    """Targets (B, K) from compact labels: classes (B,), weights of the classes (B, K), or the targets themselves."""
    if task is not Task.MULTICLASS:
        return compact.to(dtype)
    if compact.dim() == 1:
        return F.one_hot(compact.to(torch.int64), outputs).to(dtype)
    weights = compact.to(dtype)
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=1)  # a row that was never filled stays zero
