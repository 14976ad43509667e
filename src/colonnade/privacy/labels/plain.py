"""Plain labels: training sees them as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.privacy.events import Event, PlainEvent, Unit
from colonnade.privacy.labels import Visit
from colonnade.tasks import Scaling, Task

PLAIN = PlainEvent(unit=Unit.LABEL)


@dataclass(frozen=True)
class PlainLabels:
    """Labels without protection; numbers to predict are put on a common scale, as columns are."""

    values: Tensor = field(repr=False)  # (N,) classes or (N, K) numbers, on the run's device
    task: Task
    scaling: Scaling | None = field(default=None, repr=False)  # of numbers and counts

    @classmethod
    def of(cls, values: Tensor, task: Task, train: Tensor) -> PlainLabels:
        """Labels of a federation; the scale of numbers comes from its training rows."""
        return cls(values, task, task.scaling(values[train.to(values.device)]))

    @property
    def event(self) -> Event:
        """No protection, and the ledger says so."""
        return PLAIN

    @property
    def epsilon(self) -> float | None:
        """None: there is no bound on what the labels' users learn."""
        return None

    def targets(self, plan: Visit, logits: Tensor) -> Tensor:
        """One-hot rows for classes, the (scaled) numbers otherwise; in the dtype of the logits."""
        return self.task.expand(self._chosen(plan.rows), logits.dtype)

    def held_out(self, rows: Tensor) -> Tensor:
        """The same for rows to validate on."""
        return self.task.expand(self._chosen(rows), torch.float64)

    def compact(self, rows: Tensor) -> Tensor:
        """One byte per class label where it fits."""
        return self.task.compact(self._chosen(rows))

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor | None:
        """All alike; `WeightedLabels` knows others."""
        return None

    def _chosen(self, rows: Tensor) -> Tensor:
        chosen = self.values[rows.to(self.values.device)]
        return chosen if self.scaling is None else (chosen - self.scaling.shift) / self.scaling.scale

    def state(self) -> dict[str, Tensor]:
        """What prediction needs to give numbers on their own scale again, as exact as the labels are."""
        if self.scaling is None:
            return {}
        back = self.scaling
        return {"target.shift": back.back_shift.double(), "target.scale": back.back_scale.double()}
