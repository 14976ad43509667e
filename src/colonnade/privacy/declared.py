"""Noise that a method has in its model (Linear-ADMM): it is in the values already, and the ledger says what it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from colonnade.privacy.events import Event, Hides, Kind, Unit


@dataclass(frozen=True)
class ModelNoiseEvent(Event):
    """Noise on a party's model, which makes its uploads. No accountant knows what such an upload gives away."""

    kind: ClassVar[Kind] = Kind("model noise", "noise on the party's model, which makes its uploads", Hides.COLUMNS)

    sigma: float  # in units of the method's own
    simulated: bool
    unit: Unit = field(default=Unit.ROW, kw_only=True)


@dataclass(frozen=True)
class Declared:
    """The mechanism: nothing happens at the gate."""

    event: Event

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """The values themselves."""
        return upload
