"""What may stand between an upload and the wire, and which of it stands before which purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import Tensor

from colonnade.errors import BudgetSpent, GateError
from colonnade.privacy.accounting import SENSITIVITY, Neighbours, affordable, largest_shift
from colonnade.privacy.by_row import RowNoise
from colonnade.privacy.events import Event, Hides, PlainEvent
from colonnade.privacy.gaussian import NoiseSource, SystemNoise
from colonnade.privacy.ledger import Ledger
from colonnade.wire.messages import Purpose

PLAIN = PlainEvent()


class Mechanism(Protocol):
    """What happens to an upload before it is released."""

    @property
    def event(self) -> Event:
        """What the ledger says of its releases; `OtherEvent` for a mechanism that no accountant knows."""
        ...

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """The (P, B, ...) arrays as they may leave, one independent draw per party."""
        ...


@runtime_checkable
class Hiding(Mechanism, Protocol):
    """A mechanism whose releases only open together: what leaves is not what the party remembers to have uploaded."""

    @property
    def roster(self) -> str:
        """The digest of who must be together."""
        ...

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> Mapping[str, Tensor]:
        """The (P, B, ...) arrays as they leave; they open only with answers about the same rows (a digest)."""
        ...


class Opener(Protocol):
    """What the reader of hidden releases opens them with, all together."""

    def total(
        self, number: int, part: int, purpose: Purpose, rows: str, received: Mapping[str, Mapping[str, Tensor]]
    ) -> Mapping[str, Tensor]:
        """The sum over all parties of what they sent for one ask."""
        ...


@dataclass(frozen=True)
class Unchanged:
    """No protection: the values leave as they are, and the ledger says so."""

    event: Event = PLAIN

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """The values themselves."""
        return upload


@dataclass(frozen=True)
class Budget:
    """What the Gaussian releases of one party may cost in all."""

    epsilon: float
    delta: float
    neighbours: Neighbours = "absent"

    @cached_property
    def precision(self) -> float:
        """The sum of 1/sigma^2 over releases that it buys."""
        return (largest_shift(self.epsilon, self.delta) / SENSITIVITY[self.neighbours]) ** 2

    def would_exceed(self, ledger: Ledger, party: str, event: Event, rows: int) -> bool:
        """Whether one more release of a party, about so many rows, costs more than there is left."""
        precision = event.precision(rows)
        if precision is None:  # whatever has no Gaussian noise has no bound at all, or none that this budget counts
            return event.kind.hides is not Hides.NEEDLESS
        return ledger.precision(party) + precision > self.precision * (1 + 1e-8)

    def releases(self, sigma: float) -> int:
        """How many releases with this noise it buys."""
        return affordable(sigma, self.epsilon, self.delta, self.neighbours)

    def __str__(self) -> str:
        facts = f"delta {self.delta:g}, unit PARTY, neighbours: {self.neighbours}, exact accountant"
        return f"epsilon {self.epsilon:g} ({facts})"


@dataclass(frozen=True)
class Protection:
    """Which mechanism stands before which purpose; None: nothing leaves for that purpose."""

    training: Mechanism = field(default_factory=Unchanged)
    evaluation: Mechanism | None = field(default_factory=Unchanged)
    prediction: Mechanism | None = field(default_factory=Unchanged)
    budget: Budget | None = None  # of training, per party
    source: NoiseSource = field(default_factory=SystemNoise)  # also of noise that a method draws into its own model
    local: RowNoise | None = None  # where parties train at home with noise, and upload nothing in training

    @classmethod
    def everywhere(cls, mechanism: Mechanism | None) -> Protection:
        """The same mechanism for every purpose."""
        return cls() if mechanism is None else cls(mechanism, mechanism, mechanism)

    @property
    def noised(self) -> bool:
        """Whether noise stands before training: then nothing else may tell what a party computed, no error either."""
        return not self.training.event.bare

    def before(self, purpose: Purpose) -> Mechanism:
        """The mechanism of a purpose; `GateError` if nothing may leave for it."""
        found = {Purpose.TRAIN: self.training, Purpose.EVALUATE: self.evaluation}.get(purpose, self.prediction)
        if found is None:
            raise GateError(f"nothing may leave for {purpose.value} in this run; nothing was released")
        return found

    def check(self, ledger: Ledger, parties: Sequence[str], purpose: Purpose, rows: int) -> None:
        """Refuse a training release that would cost more than there is left."""
        if self.budget is None or purpose is not Purpose.TRAIN:
            return
        for party in parties:
            if self.budget.would_exceed(ledger, party, self.training.event, rows):
                raise BudgetSpent(
                    f"one more release of {party!r} would pass its budget of {self.budget}; none was made"
                )
