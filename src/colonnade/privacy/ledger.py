"""Ledger: everything ever released in a run. Append-only; saved, replayed, continued by resume."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from colonnade.privacy.chain import now
from colonnade.privacy.events import Event, Parameters, Unit
from colonnade.privacy.registry import read_event
from colonnade.wire.messages import Purpose

if sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing_extensions import NotRequired


class Line(TypedDict):
    """A release as a line of `ledger.jsonl`; stored, so its keys never change."""

    owner: str
    audience: str
    unit: str
    mechanism: str
    purpose: str
    number: int
    rows: int
    digest: str
    parameters: Parameters
    size: NotRequired[int]  # these three: not in lines of earlier versions
    time: NotRequired[str]
    chain: NotRequired[str]
    callers: NotRequired[Sequence[Sequence[str | int]]]  # of a question that somebody called for over HTTP


Callers = tuple[tuple[str, int], ...]  # who called, and for how many rows


@dataclass(frozen=True, slots=True)
class Entry:
    """One message that left its owner.

    Two entries are equal if the same was released: when it was recorded, and what a file added to it, is not compared.
    """

    owner: str  # whose information it carries
    audience: str  # who receives it
    event: Event  # what was done to it before
    purpose: Purpose
    number: int  # the round it belongs to
    rows: int  # how many rows it is about
    digest: str  # SHA-256 of the payload
    notes: Parameters = ()  # what is said of it besides the parameters of its event
    size: int | None = field(default=None, compare=False)  # bytes of the payload; None: an earlier version did not say
    time: str = field(default="", compare=False)  # when it was recorded, in UTC; "": likewise
    chain: str = field(default="", compare=False, repr=False)  # as a file had it, see `privacy/chain.py`
    callers: Callers = field(default=(), compare=False)  # of a question that somebody called for over HTTP

    @property
    def mechanism(self) -> str:
        """What the ledger calls that which was done to it."""
        return self.event.name

    @property
    def unit(self) -> Unit:
        """The thing whose presence its mechanism hides."""
        return self.event.unit

    @property
    def parameters(self) -> Parameters:
        """Of the mechanism, and notes."""
        return (*self.event.parameters, *self.notes) if self.notes else self.event.parameters

    def to_json(self) -> Line:
        """Plain values, for a JSON line; what is not known is not there."""
        line: Line = {
            "owner": self.owner,
            "audience": self.audience,
            "unit": self.event.unit.value,
            "mechanism": self.event.name,
            "purpose": self.purpose.value,
            "number": self.number,
            "rows": self.rows,
            "digest": self.digest,
            "parameters": self.parameters,
        }
        if self.size is not None:
            line["size"] = self.size
        if self.time:
            line["time"] = self.time
        if self.callers:
            line["callers"] = self.callers
        if self.chain:
            line["chain"] = self.chain
        return line

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Entry:
        """The inverse of `to_json`."""
        rest = dict(values)
        name, unit = str(rest.pop("mechanism")), Unit(rest.pop("unit"))
        stored = tuple((str(k), float(v)) for k, v in rest.pop("parameters"))
        event, notes = read_event(name, unit, stored)
        callers = tuple((str(who), int(rows)) for who, rows in rest.pop("callers", ()))
        return cls(**{**rest, "event": event, "purpose": Purpose(rest["purpose"]), "notes": notes, "callers": callers})


class Ledger:
    """An append-only list of releases; there is no way to take one back.

    A gate that hashes beside other work says which entries will come (`expect`). They stand where they were announced:
    whoever reads or writes here waits for them first.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._expected: deque[Callable[[], Sequence[Entry]]] = deque()
        self._announced = 0  # how often releases were, so far
        self._settling = False
        self._digests: set[str] = set()
        self._precision: dict[str, float] = {}
        self._events: set[tuple[str, Event]] = set()
        for entry in entries:
            self._add(entry)

    def record(self, entry: Entry) -> None:
        """Add one release, with the time. Called by the gate, before anything can travel."""
        self.settle()
        self._add(entry if entry.time else replace(entry, time=now()))

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Add what was recorded and stored before; a time that it does not have stays unknown."""
        self.settle()
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._digests.add(entry.digest)
        self._events.add((entry.owner, entry.event))
        precision = entry.event.precision(entry.rows)
        if precision is not None:
            self._precision[entry.owner] = self._precision.get(entry.owner, 0.0) + precision

    def expect(self, entries: Callable[[], Sequence[Entry]]) -> Callable[[], None]:
        """Add releases whose digests are being computed; `entries` waits for them. Called by the gate.

        What is returned waits until they are here, and for nothing that was announced after them.
        """
        self._expected.append(entries)
        self._announced += 1
        place = self._announced

        def wait() -> None:
            if place > self._announced - len(self._expected):
                self.settle()

        return wait

    def settle(self) -> None:
        """Wait for every release that was announced, and add it."""
        if self._settling:  # who makes entries may ask for those before them
            return
        self._settling = True
        try:
            while self._expected:
                for entry in self._expected[0]():
                    self.record(entry)
                self._expected.popleft()  # not before: what fails or is interrupted is still missing here
        finally:
            self._settling = False

    def __iter__(self) -> Iterator[Entry]:
        self.settle()
        return iter(self._entries)

    def __len__(self) -> int:
        self.settle()
        return len(self._entries)

    def since(self, count: int) -> tuple[Entry, ...]:
        """The releases recorded after the first `count`."""
        self.settle()
        return tuple(self._entries[count:])

    def holds(self, digest: str) -> bool:
        """Whether a payload with this digest was released."""
        self.settle()
        return digest in self._digests

    def has(self, owner: str, event: Event) -> bool:
        """Whether something of an owner passed exactly this."""
        self.settle()
        return (owner, event) in self._events

    def precision(self, owner: str) -> float:
        """The sum of 1/sigma^2 over an owner's Gaussian releases: what a budget is compared with."""
        self.settle()
        return self._precision.get(owner, 0.0)

    def counts(self) -> dict[tuple[str, Purpose], int]:
        """How often each owner released something, by purpose."""
        return dict(Counter((r.owner, r.purpose) for r in self))
