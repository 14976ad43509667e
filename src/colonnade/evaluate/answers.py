"""Answers: what a model says of some rows, calibrated and decided, for metrics of either."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.evaluate.decision import Decision
from colonnade.evaluate.metrics import Metric
from colonnade.tasks import Task


@dataclass(frozen=True)
class Answers:
    """Outputs (B, K): with calibrated probabilities, and moved so that decisions follow the threshold."""

    calibrated: Tensor = field(repr=False)
    decided: Tensor = field(repr=False)

    @classmethod
    def of_outputs(
        cls,
        task: Task,
        outputs: Tensor,
        decision: Decision | None,
        threshold: float | None = None,
        complete: Tensor | None = None,
    ) -> Answers:
        """Of a model with this decision, or with another threshold.

        A calibration is that of all parties together: rows (B,) that are not `complete` go without.
        """
        if decision is not None and complete is not None and not bool(complete.all()):
            some = cls.of_outputs(task, outputs, replace(decision, calibration="", points=()), threshold)
            every = cls.of_outputs(task, outputs, decision, threshold)
            pairs = ((every.calibrated, some.calibrated), (every.decided, some.decided))
            return cls(*(torch.where(complete[:, None], one.double(), other.double()) for one, other in pairs))
        if decision is not None:
            return cls(decision.calibrated(outputs), decision.decided(task, outputs, threshold))
        return cls(outputs, outputs if threshold is None else task.moved(outputs, threshold))

    def to(self, metric: Metric) -> Tensor:
        """What a metric is a function of."""
        return self.decided if metric.decides else self.calibrated

    def of(self, rows: Tensor) -> Answers:
        """Of some rows."""
        return Answers(self.calibrated[rows], self.decided[rows])


@dataclass(frozen=True)
class Evaluated:
    """Answers to the test rows beside what is true: for comparisons row by row, in memory only."""

    task: Task
    answers: Answers = field(repr=False)
    truth: Tensor = field(repr=False)  # (B,) classes or (B, K) numbers
    weights: Tensor | None = field(default=None, repr=False)  # (B,) of the rows; None: all alike
