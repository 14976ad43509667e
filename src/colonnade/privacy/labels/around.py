"""Labels around others: what a wrapper does not change, it asks of the labels inside."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from colonnade.privacy.events import Event
from colonnade.privacy.labels import Labels, Visit
from colonnade.tasks import Task


@dataclass(frozen=True)
class AroundLabels:
    """Labels as they are inside; a subclass says what is different."""

    inner: Labels

    @property
    def task(self) -> Task:
        """Of the labels inside."""
        return self.inner.task

    @property
    def event(self) -> Event:
        """Of the labels inside."""
        return self.inner.event

    @property
    def epsilon(self) -> float | None:
        """Of the labels inside."""
        return self.inner.epsilon

    def targets(self, plan: Visit, logits: Tensor) -> Tensor:
        """Of the labels inside."""
        return self.inner.targets(plan, logits)

    def held_out(self, rows: Tensor) -> Tensor:
        """Of the labels inside."""
        return self.inner.held_out(rows)

    def state(self) -> dict[str, Tensor]:
        """Of the labels inside."""
        return self.inner.state()

    def compact(self, rows: Tensor) -> Tensor:
        """Of the labels inside."""
        return self.inner.compact(rows)

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor | None:
        """Of the labels inside."""
        return self.inner.weights(rows, targets)
