"""What was released, as frozen facts. An accountant bounds it; these records do not.

An event says what a mechanism did to one message. Each mechanism has a class of events, in the file of the mechanism
(`gaussian.py`, `bounded.py`, `pbm.py`, `declared.py`, `labels/alibi.py`, ...); `registry.py` lists them all. Whoever
needs to know something of a release asks its event, and nobody compares names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from colonnade.extras import need

if TYPE_CHECKING:
    from colonnade.privacy.pbm import Counted

Parameters = tuple[tuple[str, float], ...]  # as the ledger has them
E = TypeVar("E", bound="Event")


class Unit(str, Enum):
    """The thing whose presence a mechanism would hide."""

    PARTY = "PARTY"  # all that one party holds
    ROW = "ROW"
    LABEL = "LABEL"


class LabelExposure(str, Enum):
    """Who can read labels off the downlink of a method."""

    NONE = "NONE"
    EPS = "EPS"  # bounded by a label mechanism
    FULL = "FULL"


class Hides(Enum):
    """What a mechanism keeps from the reader of a message."""

    NOTHING = "nothing"  # it left as it was: nothing bounds what the reader learns
    COLUMNS = "columns"
    LABELS = "labels"
    NEEDLESS = "needless"  # nothing in the message was computed from a column or a label
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Kind:
    """What is true of all events of one mechanism, whatever their parameters."""

    name: str  # in ledgers, records, agreements and policies: stored, so it never changes
    words: str  # what was done to the message, for a reader
    hides: Hides

    @property
    def bare(self) -> bool:
        """Whether nothing bounds what the reader learns."""
        return self.hides is Hides.NOTHING


class Clipped(NamedTuple):
    """Gaussian noise on uploads that were clipped to a norm: what the game of an audit is played against."""

    clip: float
    sigma: float  # in units of the clipping norm


@dataclass(frozen=True)
class Event(ABC):
    """What a mechanism did to one message. The fields are the parameters that the ledger stores, in this order.

    A field that is None is not stored: an earlier version did not know it.
    """

    summable: ClassVar[bool] = False  # the parameters also say what it costs if only the sum over the parties is seen
    bounded: ClassVar[bool] = False  # every number was bounded, no norm clipped: C is that of numbers at their bound

    unit: Unit = field(default=Unit.PARTY, kw_only=True)

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What is true of all of these events; of most classes it is a constant."""

    @property
    def name(self) -> str:
        """What the ledger calls the mechanism."""
        return self.kind.name

    @property
    def bare(self) -> bool:
        """Whether nothing bounds what the reader learns."""
        return self.kind.bare

    @cached_property
    def parameters(self) -> Parameters:
        """As the ledger stores them."""
        values = ((name, getattr(self, name)) for name in _stored(type(self)))
        return tuple((n, float(v) if isinstance(v, bool) else v) for n, v in values if v is not None)

    @classmethod
    def read(cls: type[E], facts: Mapping[str, float], unit: Unit) -> tuple[E, Parameters]:
        """An event from the parameters of a ledger, and what else was noted there.

        Raises:
            ValueError: a parameter is missing or impossible.
        """
        known = _stored(cls)
        if missing := [name for name, (_, needed) in known.items() if needed and name not in facts]:
            raise ValueError(f"{cls.__name__} needs {', '.join(missing)}")
        values = {name: known[name][0](value) for name, value in facts.items() if name in known}
        return cls(unit=unit, **values), tuple(fact for fact in facts.items() if fact[0] not in known)

    def precision(self, rows: int) -> float | None:
        """1/sigma^2 of a Gaussian release about so many rows; None: it is none.

        Sigma is the noise in units of the largest norm that the upload may have.
        """
        return None

    def counted(self, rows: int, among: int = 1) -> Counted | None:
        """What the accountant of counts sees, if only the sum over `among` parties shows; None: there are no counts."""
        return None

    @property
    def pure(self) -> float | None:
        """The epsilon, where it holds with delta 0 and noise is drawn once for all messages of a run."""
        return None

    @property
    def releases(self) -> int:
        """How many releases an entry stands for: of training at home one for each step."""
        return 1

    @property
    def clipped(self) -> Clipped | None:
        """Norm and noise, where uploads are clipped to a norm before they get Gaussian noise."""
        return None

    @property
    def off_grid(self) -> bool:
        """Whether noise was added in floating point, by an earlier version: low bits may tell more than its epsilon."""
        return False

    @property
    def before_grids(self) -> Event:
        """The same event as an earlier version wrote it, which added noise in floating point."""
        return self

    @property
    def repeatable(self) -> bool:
        """Whether whoever knows the seed of the run can draw the noise again."""
        return bool(dict(self.parameters).get("simulated"))

    def to_dp_event(self, rows: int, sensitivity: float = 1.0) -> Any | None:
        """The same release in the terms of dp-accounting; None: that library has none for it.

        Args:
            rows: that the release is about.
            sensitivity: in units of the largest norm: 1 for an absent party, 2 for a replaced one.
        """
        dp = need("dp_accounting", extra="privacy", purpose="an epsilon")
        if self.bare:
            return dp.NonPrivateDpEvent()
        precision = self.precision(rows)
        return None if precision is None else dp.GaussianDpEvent(1 / (sensitivity * math.sqrt(precision)))

    def __str__(self) -> str:
        return f"{self.name} {dict(self.parameters)}" if self.parameters else self.name


@dataclass(frozen=True)
class PlainEvent(Event):
    """The message left as it was."""

    kind: ClassVar[Kind] = Kind("none", "left unchanged", Hides.NOTHING)


@dataclass(frozen=True)
class EmptyEvent(Event):
    """Row numbers and instructions only: nothing in the message was computed from a label."""

    kind: ClassVar[Kind] = Kind("empty", "row numbers and instructions only", Hides.NEEDLESS)

    def to_dp_event(self, rows: int, sensitivity: float = 1.0) -> Any | None:
        """It costs nothing."""
        return need("dp_accounting", extra="privacy", purpose="an epsilon").NoOpDpEvent()


@dataclass(frozen=True)
class OtherEvent(Event):
    """A mechanism that has no class here, such as one of a user's own: a name, and facts that nobody accounts for."""

    called: str
    facts: Parameters = ()

    @cached_property
    def kind(self) -> Kind:
        """By its own name."""
        return Kind(self.called, "a mechanism of its own, which no accountant here knows", Hides.UNKNOWN)

    @cached_property
    def parameters(self) -> Parameters:
        """As they were given."""
        return self.facts


@cache
def _stored(event: type[Event]) -> dict[str, tuple[type, bool]]:
    """The stored fields of a class of events: what reads each of them, and whether there is no event without it."""
    hints = get_type_hints(event)
    names = {f.name: f.default is MISSING for f in fields(event) if f.name != "unit"}
    return {name: (hints[name] if hints[name] in (bool, int) else float, needed) for name, needed in names.items()}


def positive(**values: float) -> None:
    """Refuse parameters from which no accountant could compute anything."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value:g}: a number above 0 was needed")
