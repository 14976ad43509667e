"""A mechanism that stands round another one and says the same of itself."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.privacy.events import Unit
from colonnade.privacy.mechanism import Mechanism


@dataclass
class Around:
    """Name, unit and parameters are those of the mechanism inside: the ledger cannot tell the two apart."""

    inner: Mechanism

    @property
    def name(self) -> str:
        """Of the mechanism inside."""
        return self.inner.name

    @property
    def unit(self) -> Unit:
        """Of the mechanism inside."""
        return self.inner.unit

    @property
    def parameters(self) -> tuple[tuple[str, float], ...]:
        """Of the mechanism inside."""
        return self.inner.parameters
