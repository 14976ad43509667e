"""A mechanism that stands round another one and says the same of itself."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.privacy.events import Event
from colonnade.privacy.mechanism import Mechanism


@dataclass
class Around:
    """Its event is that of the mechanism inside: the ledger cannot tell the two apart."""

    inner: Mechanism

    @property
    def event(self) -> Event:
        """Of the mechanism inside."""
        return self.inner.event
