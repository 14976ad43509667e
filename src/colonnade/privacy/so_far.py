"""What training has cost each party up to now; for those who watch it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from colonnade.errors import DataError
from colonnade.privacy.accounting import SENSITIVITY, exact_epsilon
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.settings import PrivacySettings


@dataclass(frozen=True)
class SoFar:
    """What training has cost each party up to now; where uploads are noised."""

    parties: Mapping[str, float]  # exact epsilons of those that have released something
    settings: PrivacySettings

    @classmethod
    def of(cls, ledger: Ledger, settings: PrivacySettings, parties: Iterable[str]) -> SoFar | None:
        """From the ledger's running sums, since this is asked every round; None where there is no figure."""
        if not settings.protects:
            return None
        scale = SENSITIVITY[settings.neighbours]
        shifts = {party: scale * math.sqrt(ledger.precision(party)) for party in parties}
        try:
            spent = {party: _exact(shift, settings.delta) for party, shift in shifts.items() if shift > 0}
        except DataError:  # the library that accounts is not installed: training goes on without a figure
            return None
        return cls(spent, settings) if spent else None

    @property
    def largest(self) -> float:
        """The federation's figure."""
        return max(self.parties.values())

    @property
    def figure(self) -> str:
        """The federation's figure, and the least of the parties' where they differ; never without `legend`."""
        least = min(self.parties.values())
        return f"epsilon {self.largest:.3f}" + (f" (least {least:.3f})" if self.largest - least >= 5e-4 else "")

    @property
    def legend(self) -> str:
        """What belongs to the figure."""
        facts = f"exact accountant, unit PARTY, neighbours: {self.settings.neighbours}, delta {self.settings.delta:g}"
        return f"epsilon so far, largest over parties: {facts}; labels, evaluation and predictions are not covered"


@cache
def _exact(shift: float, delta: float) -> float:
    return exact_epsilon(shift, delta)  # parties that uploaded equally often share it
