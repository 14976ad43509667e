"""A mechanism that stands round another one and says the same of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from colonnade.privacy.events import Event
from colonnade.privacy.mechanism import Hiding, Mechanism


@dataclass
class Around:
    """Its event is that of the mechanism inside: the ledger cannot tell the two apart."""

    inner: Mechanism

    @property
    def event(self) -> Event:
        """Of the mechanism inside."""
        return self.inner.event


@dataclass
class AroundSum(Around):
    """The same of a mechanism whose releases open only together; a subclass says what is different."""

    inner: Hiding

    @property
    def roster(self) -> str:
        """Of the mechanism inside."""
        return self.inner.roster

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """Of the mechanism inside."""
        return self.inner(upload, parties, number, what)

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> Mapping[str, Tensor]:
        """Of the mechanism inside."""
        return self.inner.hide(values, parties, number, part, rows)
