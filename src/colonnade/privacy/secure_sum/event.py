"""What the ledger says of a party's part of a secure sum: what protected it before, and how many were added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from colonnade.privacy.events import Clipped, Event, Kind, Parameters, PlainEvent
from colonnade.privacy.pbm import Counted

SUM = "sum"


@dataclass(frozen=True)
class SumEvent(Event):
    """Only the sum over all parties opens; `of` says what was done to each part before."""

    of: Event
    parties: float
    colluders: float | None = None  # parties that may tell what they know; of no consequence without noise

    @classmethod
    def around(cls, of: Event, beside: Parameters) -> tuple[SumEvent, Parameters]:
        """From the event of a part, and what a ledger says beside it: who adds, and notes.

        Raises:
            ValueError: nothing says how many were added.
        """
        facts = dict(beside)
        if "parties" not in facts:
            raise ValueError(f"a sum of {of.name!r} without its parties")
        parties, colluders = facts.pop("parties"), facts.pop("colluders", None)
        return cls(of, parties, colluders, unit=of.unit), tuple(facts.items())

    @cached_property
    def kind(self) -> Kind:
        """That of its parts, summed."""
        return kind_of_sum(self.of.kind)

    @cached_property
    def parameters(self) -> Parameters:
        """Those of a part, and who adds."""
        known = () if self.colluders is None else (("colluders", self.colluders),)
        return (*self.of.parameters, ("parties", self.parties), *known)

    def precision(self, rows: int) -> float | None:
        """Of the noise in the sum, where the parties share it."""
        return self.of.precision(rows) if self.of.summable else None

    def counted(self, rows: int, among: int = 1) -> Counted | None:
        """Counts of which only the sum shows; colluders hide nobody."""
        if not self.of.summable or self.colluders is None:
            return None
        return self.of.counted(rows, int(self.parties - self.colluders))

    @property
    def clipped(self) -> Clipped | None:
        """That of a part, where the noise of the sum is meant."""
        return self.of.clipped if self.of.summable else None


def kind_of_sum(of: Kind) -> Kind:
    """What is true of a sum of such parts."""
    if of == PlainEvent.kind:
        return Kind(SUM, "only the sum over all parties opens, and that without noise", of.hides)
    return Kind(f"{of.name} {SUM}", f"{of.words}; only the sum over all parties opens", of.hides)
