"""The gate: the only way from `upload` to the wire, and from `coordinate` to the wire.

One call checks the budget, releases, writes the ledger event and seals. A mechanism stands
between the upload and its release, chosen by purpose; `Unchanged` is the plain one, which lets
everything pass and says so in the ledger. Noise and clipping are further mechanisms, not
another path. What may leave then gets the numbers that the run agreed on (`wire/numbers.py`), and
its owner remembers it as its reader decodes it.

An upload that is not finite is refused (`Diverged`), and everybody is told, where nothing is
protected. Before noise it is not: that one bit would be a release which nobody counts, and a
coordinator that sends a crafted reply reads a person's columns off it. There such numbers count
as 0, and the upload leaves like any other.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from colonnade.errors import Diverged, GateError
from colonnade.gpu import to_host
from colonnade.layout import canonical_all
from colonnade.privacy.events import EmptyEvent, Parameters, Unit
from colonnade.privacy.finite import made_finite, unasked
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.plain import PLAIN
from colonnade.privacy.ledger import Callers, Entry, Ledger
from colonnade.privacy.mechanism import Hiding, Mechanism, Protection, Unchanged
from colonnade.privacy.sealed import Array, Release, Upload, seal, unwrap
from colonnade.privacy.side_by_side import side_by_side
from colonnade.wire.codec import all_finite, encode
from colonnade.wire.messages import (
    COORDINATOR,
    Purpose,
    Request,
    common_arrays,
    own_arrays,
    request_arrays,
    request_header,
)
from colonnade.wire.numbers import Numbers
from colonnade.wire.rows import KnownRows

EMPTY = EmptyEvent(unit=Unit.LABEL)
WEIGHTS: Parameters = (("weights", 1.0),)  # noted where weights of rows travel with the labels
CONSENT: Parameters = (("consent", 1.0),)  # noted where parties are asked only whether they would answer
SIDES = "column_sides"  # noted where a reply tells everybody on which side of a median columns of the guest are
OnHost = tuple[dict[str, Tensor], Callable[[], None] | None]  # tensors, and what waits until they are there
WORTH_A_THREAD = 2**16  # bytes of one message from which hashing it in a thread pays


@dataclass(frozen=True)
class Passed:
    """What a cohort released for one ask: sealed messages, and what their reader will decode."""

    parties: tuple[str, ...]
    sealed: Callable[[], tuple[Release, ...]] = field(repr=False)  # see `releases`
    values: Mapping[str, Tensor] = field(repr=False)  # (P, B, ...), never the clean upload
    hidden: Mapping[str, Tensor] | None = field(default=None, repr=False)  # what left, where it opens only together

    @property
    def releases(self) -> tuple[Release, ...]:
        """The messages, one per party. While they are being hashed, this waits until the ledger has them."""
        return self.sealed()

    @property
    def sent(self) -> Mapping[str, Tensor]:
        """What its reader decodes."""
        return self.values if self.hidden is None else self.hidden


NOTHING = Passed((), tuple, {})  # of parties that were not asked


@dataclass(frozen=True)
class Down:
    """What the coordinator released in one round: sealed messages, and what their readers will decode."""

    sealed: Callable[[], Mapping[str, Release]] = field(repr=False)  # by reader, "*" being everyone; see `everyone`
    common: Mapping[str, Tensor] = field(repr=False)
    groups: tuple[Mapping[str, Tensor], ...] = field(repr=False)  # own parts by group, (P, ...)

    @property
    def everyone(self) -> Release:
        """The common message. Where it is not sealed yet, this does it, and records it."""
        return self.sealed()["*"]

    @property
    def own(self) -> Mapping[str, Release]:
        """The messages to single parties, by party, likewise."""
        return {party: released for party, released in self.sealed().items() if party != "*"}


LACKING = "lacking_rows"  # what the ledger calls their number


@dataclass
class Gate:
    """A party's (or a cohort's) gate. `agreed` are the arrays the run agreed on."""

    run: str
    ledger: Ledger
    agreed: Mapping[str, Array]
    protection: Protection = field(default_factory=Protection)
    notes: Parameters = ()  # what the ledger says of releases, besides the mechanism's parameters
    lacking: Mapping[str, int] = field(default_factory=dict)  # by party, rows asked about that it does not hold
    numbers: Numbers = field(default_factory=Numbers)  # in which they travel

    def __post_init__(self) -> None:
        self.shown: Parameters = tuple((a.note, float(a.width)) for a in self.agreed.values() if a.note)
        if self.shown and (self.protection.noised or isinstance(self.protection.training, Hiding)):
            told = ", ".join(name for name, _ in self.shown)
            raise GateError(f"{told}: what says this of columns leaves as it is, and this run protects uploads")

    def release(
        self,
        upload: Upload,
        parties: Sequence[str],
        number: int,
        purpose: Purpose,
        rows: int,
        part: int = 0,
        about: str = "",
    ) -> Passed:
        """Release an upload of a cohort: protect, encode, record and seal, one message per party.

        Whatever may be refused is refused before the first event is written. `part` tells apart the pieces of one
        round, so that a mechanism never draws the same noise for two of them. `about` is the digest of the rows.
        """
        clean, mechanism = canonical_all(unwrap(upload)), self.protection.before(purpose)
        self._check(clean, parties, rows)
        self._check_numbers(mechanism)
        self.protection.check(self.ledger, parties, purpose, rows)
        values, copy = _through(mechanism, clean, parties, number, f"{purpose.value}.{part}")
        hidden, extra = None, self.numbers.header
        if isinstance(mechanism, Hiding):
            hidden, extra = mechanism.hide(values, parties, number, part, about), {"roster": mechanism.roster}
            values = {name: value.to(clean[name]) for name, value in values.items()}
        host, arrived = to_host(hidden) if hidden else copy or to_host(values)
        if arrived is not None:
            arrived()
        if not self.numbers.full:
            host = self._coded(host, parties, 1 if purpose is Purpose.TRAIN else None)
            values = {name: value.to(clean[name]) for name, value in self.numbers.decode(host).items()}

        def one(index: int) -> Release:
            party = parties[index]
            header = {"run": self.run, "number": number, "kind": purpose.value, "part": part, "sender": party} | extra
            mine = {name: value[index] for name, value in host.items()}
            return seal(party, purpose.value, number, encode(header, mine, known_finite=True))

        notes = {party: (*self.notes, *self.shown, *_lacks(self.lacking.get(party, 0))) for party in parties}

        def entry(released: Release) -> Entry:
            party, digest, size = released.sender, released.digest, len(released.payload)
            return Entry(party, COORDINATOR, mechanism.event, purpose, number, rows, digest, notes[party], size)

        sealed = self._seal_all(one, len(parties), entry, host, aside=arrived is not None)
        return Passed(tuple(parties), sealed, canonical_all(values), hidden and canonical_all(hidden))

    def _seal_all(
        self,
        one: Callable[[int], Release],
        count: int,
        entry: Callable[[Release], Entry],
        host: Mapping[str, Tensor],
        aside: bool,
    ) -> Callable[[], tuple[Release, ...]]:
        """Seal and record in order; in threads where there is much to hash, since hashing lets other threads run.

        `aside`: not now, but when somebody wants a message or looks into the ledger; engines do while a GPU computes.
        """
        many = count > 1 and sum(value.nbytes for value in host.values()) >= count * WORTH_A_THREAD

        @functools.cache
        def sealing() -> tuple[Release, ...]:
            return tuple(side_by_side(one, count) if many else map(one, range(count)))

        later = many and aside
        if not later:
            sealing()  # before the ledger expects it: what is refused here is none of its business
        wait = self.ledger.expect(lambda: [e for released in sealing() for e in self._with_training(entry(released))])
        if not later:
            wait()

        def sealed() -> tuple[Release, ...]:
            wait()
            return sealing()

        return sealed

    def record_training(self, parties: Sequence[str], number: int) -> None:
        """Write the training at home into the ledger, once: the first time that anything may leave that it made."""
        for party in parties:
            for entry in self._training(party, number):
                self.ledger.record(entry)

    def _with_training(self, entry: Entry) -> list[Entry]:
        return [*self._training(entry.owner, entry.number), entry]

    def _training(self, party: str, number: int) -> list[Entry]:
        """What the ledger lacks of a party's training at home; there is no message, so the digest is of its address."""
        local = self.protection.local
        if local is None or self.ledger.has(party, local.event):
            return []
        digest = hashlib.sha256(f"training at home of {party} in {self.run}".encode()).hexdigest()
        return [Entry(party, COORDINATOR, local.event, Purpose.TRAIN, number, local.plan.rows, digest)]

    def _coded(self, host: Mapping[str, Tensor], parties: Sequence[str], rows: int | None) -> dict[str, Tensor]:
        """In the agreed numbers. That some are too large for them may be told: it is about what may leave."""
        exact = [name for name, array in self.agreed.items() if array.exact]
        for name, value in host.items():
            if name not in exact and not self.numbers.fit(value):
                raise Diverged(parties[int(value.abs().flatten(1).amax(dim=1).argmax())], "upload")
        return self.numbers.encode(host, rows, exact)

    def _check_numbers(self, mechanism: Mechanism) -> None:
        own = [name for name, array in self.agreed.items() if array.dtype and self.numbers.rounds(array.dtype)]
        if not self.numbers.full and (own or isinstance(mechanism, Hiding) or mechanism.event.counted(1) is not None):
            what = f"{own} have numbers of their own" if own else f"{mechanism.event.name} sends whole numbers"
            raise GateError(f"training.wire.numbers = {self.numbers.name!r}, but {what}; nothing was released")

    def _check(self, clean: Mapping[str, Tensor], parties: Sequence[str], rows: int) -> None:
        if clean.keys() != self.agreed.keys():
            raise GateError(
                f"an upload holds {sorted(clean)}; the run agreed on {sorted(self.agreed)}; nothing was released"
            )
        for name, value in clean.items():
            wanted = (len(parties), *self.agreed[name].shape(rows))
            if tuple(value.shape) != wanted:
                raise GateError(
                    f"upload {name!r} has shape {tuple(value.shape)}; the run agreed on {wanted}; nothing was released"
                )


def _through(
    mechanism: Mechanism, clean: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
) -> tuple[Mapping[str, Tensor], OnHost | None]:
    """What a mechanism makes of an upload, all of it finite; and the host's copy, if it changes nothing."""
    told = mechanism.event.bare  # whether anybody may be told that numbers are not finite
    copy = to_host(clean) if isinstance(mechanism, Unchanged) else None  # on its way while the numbers are checked
    if unasked(clean.values(), told) or not all_finite(*clean.values()):
        clean, copy = {name: made_finite(value, parties, told) for name, value in clean.items()}, None
    values = mechanism(clean, parties, number, what)
    # Rounding may overflow.
    finite = {n: value if value is clean[n] else made_finite(value, parties, told) for n, value in values.items()}
    untouched = all(finite.get(name) is value for name, value in clean.items())
    return finite, copy if untouched else None


@dataclass
class CoordinatorGate:
    """The label holder's gate: replies carry labels, so they are released and recorded too."""

    run: str
    ledger: Ledger
    everyone: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    labels: Labels | None = None  # what the replies are made from; None: plain ones
    numbers: Numbers = field(default_factory=Numbers)  # in which replies travel, but for the one before round 1
    guest: str = ""  # the label holder's own party: what goes to it alone is made from true labels
    known: KnownRows | None = None  # which rows train, where everybody agreed on them: requests need not name those
    callers: Callers = ()  # who called for this over HTTP: the ledger says so, the message does not

    def release(self, request: Request, common: Mapping[str, Tensor], own: tuple[Mapping[str, Tensor], ...]) -> Down:
        """Seal the common message, and one for each party that learns from a part of its own; nobody else gets any."""
        numbers = self.numbers.reply(request.number)
        reals = [(n, v) for part in (common, *own) for n, v in part.items() if v.is_floating_point()]
        finite = all_finite(*(value for _, value in reals))
        for name, value in reals:
            if not ((finite or all_finite(value)) and numbers.fit(value)):
                raise GateError(f"reply {name!r} holds NaN, infinite or too large values; nothing was released")
        fetched = [to_host(part) for part in (common, *own)]
        waits = [arrived for _, arrived in fetched if arrived is not None]
        if not numbers.full:
            _wait(waits)
        coded, rows = numbers.encode(fetched[0][0], 0), max((len(v) for v in common.values() if v.dim() > 0), default=0)
        each = [_apart(host, len(g), numbers) for g, (host, _) in zip(self.groups, fetched[1:], strict=False)]
        sealed: dict[str, Release] = {}

        def entries() -> list[Entry]:
            _wait(waits)
            made = [self._sealed(request, m) for m in self._messages(request, numbers, coded, rows, each)]
            sealed.update((entry.audience, released) for released, entry in made)
            # After a restart the same request is sealed again: one release.
            return [entry for _, entry in made if not self.ledger.holds(entry.digest)]

        wait = self.ledger.expect(entries)
        if not waits:  # what comes from a GPU is sealed while the GPU goes on, by whoever needs the ledger next
            wait()

        def messages() -> Mapping[str, Release]:
            wait()
            return sealed

        read = common if numbers.full else _like(common, numbers.decode(coded))
        groups = [v if numbers.full else _together(v, e, numbers) for v, e in zip(own, each, strict=False)]
        return Down(messages, read, tuple(groups))

    def _messages(
        self,
        request: Request,
        numbers: Numbers,
        common: Mapping[str, Tensor],
        rows: int,
        each: Sequence[Sequence[Mapping[str, Tensor]]],
    ) -> Iterator[_Message]:
        """The common message about so many rows, and one for each learner that has a part of its own."""
        start = {"run": self.run, "kind": "ALL", "sender": COORDINATOR, "own": bool(each)} | numbers.header
        arrays = request_arrays(request, self.known) | common_arrays(common)
        head = start | request_header(request, self.everyone, self.known)
        yield _Message("*", request.number, head, arrays, bool(common), rows)
        learners, opening = set(request.learners), request.number <= 1  # which is about all training rows
        for parties, parts in zip(self.groups, each, strict=False):
            for party, part in zip(parties, parts, strict=True):
                if party not in learners:
                    continue
                head = {"run": self.run, "number": request.number, "kind": "OWN", "sender": COORDINATOR, "to": party}
                about = max((len(value) for value in part.values() if value.dim() > 0 and opening), default=0)
                yield _Message(party, request.number, head | numbers.header, own_arrays(part), bool(part), about)

    def _sealed(self, request: Request, message: _Message) -> tuple[Release, Entry]:
        to, number, head, arrays, labels, rows = message
        released = seal(COORDINATOR, str(head["kind"]), number, encode(head, arrays, known_finite=True))
        plain = self.labels is None or to == self.guest
        made = (PLAIN if plain or self.labels is None else self.labels.event) if labels else EMPTY
        notes = WEIGHTS if {"common.weights", "weights"} & arrays.keys() else ()
        notes += ((SIDES, float(arrays["common.sides"].shape[1])),) if "common.sides" in arrays else ()
        purpose = Purpose.TRAIN
        if not labels and (asked := _afterwards(request)) is not None:  # it names rows, and carries nothing else
            purpose, rows = asked, sum(len(query.rows) for query in request.queries)
            notes += CONSENT if request.consent else ()
        size = len(released.payload)
        digest, callers = released.digest, self.callers
        return released, Entry(COORDINATOR, to, made, purpose, number, rows, digest, notes, size, callers=callers)


class _Message(NamedTuple):
    """A message of the label holder, before it is sealed."""

    to: str
    number: int
    head: Mapping[str, Any]
    arrays: Mapping[str, Tensor]
    labels: bool  # whether it carries any
    rows: int  # that it is about


def _afterwards(request: Request) -> Purpose | None:
    """What a request after training is for; None for one that belongs to a training."""
    purposes = {query.purpose for query in request.queries}
    (only,) = purposes if len(purposes) == 1 else (None,)
    return only if only in (Purpose.PREDICT, Purpose.EXPLAIN) else None


def _wait(arrivals: Sequence[Callable[[], None]]) -> None:
    for arrived in arrivals:
        arrived()


def _apart(host: Mapping[str, Tensor], parties: int, numbers: Numbers) -> list[dict[str, Tensor]]:
    """Own parts (P, ...) by party, as they travel: each by itself, so that no two share a scale."""
    return [numbers.encode({name: value[place] for name, value in host.items()}, 0) for place in range(parties)]


def _together(
    values: Mapping[str, Tensor], each: Sequence[Mapping[str, Tensor]], numbers: Numbers
) -> dict[str, Tensor]:
    """Own parts (P, ...) as their readers decode them."""
    read = [numbers.decode(mine) for mine in each]
    return _like(values, {name: torch.stack([mine[name] for mine in read]) for name in values})


def _like(values: Mapping[str, Tensor], read: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was decoded, on the device of what was encoded, and in the layout in which a message gives it."""
    return canonical_all({name: read[name].to(value.device) for name, value in values.items()})


def repeat(ledger: Ledger, sender: str, kind: str, number: int, payload: bytes) -> Release:
    """A message that was released before, again; anything that is not in the ledger is refused."""
    released = seal(sender, kind, number, payload)
    if not ledger.holds(released.digest):
        raise GateError(f"a stored message of round {number} is not in the ledger; it is not sent")
    return released


def _lacks(rows: int) -> Parameters:
    """What the ledger says of a release about rows that the party lacks: it is zero there, which shows that it does."""
    return ((LACKING, float(rows)),) if rows else ()
