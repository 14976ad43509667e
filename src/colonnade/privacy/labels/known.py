"""Labels of which some are unknown: whoever asks for one of those is refused.

What stands in the place of an unknown label is a filler. A method that reads it would train on it without complaint,
so the label holder hands out its labels behind this guard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from colonnade.errors import GateError
from colonnade.privacy.labels import Visit
from colonnade.privacy.labels.around import AroundLabels


@dataclass(frozen=True)
class KnownLabels(AroundLabels):
    """Labels as they are inside, for the rows that have one.

    Weights are given of any rows: they tell of labels only what the targets tell, which may be a method's own guesses.
    """

    labelled: Tensor = field(repr=False)  # (N,) whose label is known

    def targets(self, plan: Visit, logits: Tensor) -> Tensor:
        """Targets of the round's rows, all of which must have a label."""
        self._check(plan.rows)
        return super().targets(plan, logits)

    def held_out(self, rows: Tensor) -> Tensor:
        """Targets of rows to validate on."""
        self._check(rows)
        return super().held_out(rows)

    def compact(self, rows: Tensor) -> Tensor:
        """Targets of some rows in a small form."""
        self._check(rows)
        return super().compact(rows)

    def _check(self, rows: Tensor) -> None:
        known = self.labelled[rows.to(self.labelled.device)]
        if not bool(known.all()):
            row = int(rows.to(known.device)[~known][0])
            raise GateError(f"the label of row {row} is not known, so it cannot be used; ask for labelled rows only")
