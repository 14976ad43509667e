"""Labels of which some are unknown: whoever asks for one of those is refused.

What stands in the place of an unknown label is a filler. A method that reads it would train on it without complaint,
so the label holder hands out its labels behind this guard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.errors import GateError
from colonnade.privacy.events import Event
from colonnade.privacy.labels import Labels, Visit
from colonnade.tasks import Task


@dataclass(frozen=True)
class KnownLabels:
    """Labels as they are inside, for the rows that have one."""

    inner: Labels
    labelled: Tensor = field(repr=False)  # (N,) whose label is known

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

    def targets(self, turn: Visit, logits: Tensor) -> Tensor:
        """Targets of the turn's rows, all of which must have a label."""
        self._check(turn.rows)
        return self.inner.targets(turn, logits)

    def held_out(self, rows: Tensor) -> Tensor:
        """Targets of rows to validate on."""
        self._check(rows)
        return self.inner.held_out(rows)

    def state(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Of the labels inside."""
        return self.inner.state(dtype)

    def compact(self, rows: Tensor) -> Tensor:
        """Targets of some rows in a small form."""
        self._check(rows)
        return self.inner.compact(rows)

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor | None:
        """Of any rows: they say nothing of labels but what the targets say, which may be a method's own guesses."""
        return self.inner.weights(rows, targets)

    def _check(self, rows: Tensor) -> None:
        known = self.labelled[rows.to(self.labelled.device)]
        if not bool(known.all()):
            row = int(rows.to(known.device)[~known][0])
            raise GateError(f"the label of row {row} is not known, so it cannot be used; ask for labelled rows only")
