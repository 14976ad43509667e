"""A mechanism that stands round another one and says the same of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from colonnade.privacy.events import Event
from colonnade.privacy.mechanism import Hiding, Mechanism


@dataclass
class Around:
    """Its event is that of the mechanism inside: the ledger cannot tell the two apart.

    A subclass says what is different: what the mechanism inside is given, or the whole call.
    """

    inner: Mechanism

    @property
    def event(self) -> Event:
        """Of the mechanism inside."""
        return self.inner.event

    def given(self, upload: Mapping[str, Tensor], parties: Sequence[str]) -> Mapping[str, Tensor]:
        """What the mechanism inside is given in place of the parties' upload: the upload."""
        return upload

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """Of the mechanism inside."""
        return self.inner(self.given(upload, parties), parties, number, what)


@dataclass
class AroundSum(Around):
    """The same of a mechanism whose releases open only together."""

    inner: Hiding

    @property
    def roster(self) -> str:
        """Of the mechanism inside."""
        return self.inner.roster

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> Mapping[str, Tensor]:
        """Of the mechanism inside."""
        return self.inner.hide(values, parties, number, part, rows)
