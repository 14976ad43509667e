"""Remote: the coordinator's end of a federation whose parties run elsewhere. Nothing that arrives is trusted.

A request is sent once; whoever does not answer in time is asked again, and answers with the bytes it stored.
A message that is damaged, of another run, in another's name, not finite or not of the agreed shape is
refused and named, and counts as not having come.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.engines.base import DEPLOYED, Collected, GroupUploads, numbers_of
from colonnade.engines.link import Link
from colonnade.engines.message import Incoming, Notify, Outgoing
from colonnade.engines.party import PartySide
from colonnade.errors import ColonnadeError, Diverged, Refused, RunError, WireError
from colonnade.methods.base import Method
from colonnade.models.schema import Schema
from colonnade.models.stack import Way
from colonnade.privacy.gate import Down
from colonnade.wire.codec import decode
from colonnade.wire.messages import MOST_ROUNDS, Purpose, Request

BACK = 0.3  # seconds in which a sign of life of somebody who was away may arrive; its answer may take longer
ASK_AGAIN = 5.0  # seconds until a party that has not answered is asked again; then twice as long, and so on
LONGEST_PAUSE = 60.0
DONE, DIVERGED, REFUSED = "DONE", "DIVERGED", "REFUSED"  # what a party says instead of a release
HERE = "HERE"  # what it says when it begins to listen to a finished run, or its connection is back: it can be asked
RELEASES = frozenset(purpose.value for purpose in Purpose)
WHOLE = -1  # the part number of such a notice: it answers the whole request


class Absence(Settings):
    """What happens when a party does not answer."""

    patience: float = Field(60.0, gt=0, description="seconds without an answer after which a party counts as absent")
    then: Literal["wait", "continue", "stop"] = Field(
        "wait",
        description="wait: for as long as it takes; continue: without it, with its last uploads; "
        "stop: end the run, the best round kept",
    )


class Away(ColonnadeError):
    """A party stayed away for longer than the run is willing to wait."""


@dataclass(frozen=True)
class Arrived:
    """A message of a party, as it came."""

    sender: str
    payload: bytes = field(repr=False)
    arrays: Mapping[str, Tensor] = field(repr=False)


@dataclass
class RoundInProgress:
    """One request on its way: who still has to answer what, and what has come."""

    request: Request
    down: Down
    wanted: dict[str, set[int]]  # party -> parts
    waited_for: set[str]
    came: dict[tuple[str, int], Arrived] = field(default_factory=dict)
    late: list[tuple[int, str, Mapping[str, Tensor]]] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)  # who was waited for as long as that is done

    @property
    def trains(self) -> bool:
        """Whether this is part of the training; not the request to stop, nor the evaluation afterwards."""
        asked = any(query.purpose is Purpose.TRAIN for query in self.request.queries)
        return self.request.stop is None and (asked or bool(self.request.learners))

    @property
    def asks(self) -> bool:
        """Whether it is a prediction that was consented to: the request before it asked for that."""
        bare = (Purpose.PREDICT, Purpose.EXPLAIN)
        return not self.request.consent and any(query.purpose in bare for query in self.request.queries)

    def unanswered(self, parties: Iterable[str]) -> list[str]:
        """Those who have not answered everything."""
        return [p for p in sorted(parties) if any((p, part) not in self.came for part in self.wanted[p])]


@dataclass
class Remote:
    """The parties of other organisations, reached over a link."""

    link: Link
    schema: Schema
    method: Method
    run: str
    absence: Absence
    notify: Notify
    roster: str = ""  # digest of who adds, where answers open only together
    name: str = DEPLOYED
    away: set[str] = field(default_factory=set)
    _early: list[Incoming] = field(default_factory=list, repr=False)  # answers to the request after this one
    _begun: bool = False
    _rows_of: dict[int, int] = field(default_factory=dict, repr=False)  # training rows of each round
    _heard: set[str] = field(default_factory=set, repr=False)  # who said something in this round

    def __post_init__(self) -> None:
        s = self.schema
        self._numbers = numbers_of(s)
        self._agreed = {p: self.method.upload_arrays(s, group) for group in s.groups for p in group.parties}

    # -- one round -------------------------------------------------------------------------

    def run_round(self, request: Request, down: Down) -> Collected:
        """Send the request and its reply, and wait for everybody's answer."""
        wanted = {p: self._parts(request, p) for p in self.schema.parties}
        now = RoundInProgress(request, down, wanted, set(wanted) - self.away)
        to_send = [Outgoing(p, released) for p, released in down.own.items()]
        # A process that has just started cannot know whether the request was sent: it sends it under a new id.
        self.link.send(*to_send, Outgoing("*", down.everyone), again=not self._begun)
        self._begun = True
        self._rows_of[request.number] = next((len(a.rows) for a in request.queries if a.purpose is Purpose.TRAIN), 0)
        early, self._early = self._early, []
        self._heard.clear()
        for incoming in early:
            self._take(now, incoming)
        try:
            self._collect(now)
            while self._somebody_is_back(now):
                self._collect(now)
        except BaseException:
            self.away -= self._heard  # who refuses is there
            raise
        self.away = set(now.unanswered(self.schema.parties))
        return self._answers(now)

    def _parts(self, request: Request, party: str) -> set[int]:
        """The queries that a party has to answer; the whole request, if none, or if only its consent is asked for."""
        if request.consent:
            return {WHOLE}
        return {i for i, query in enumerate(request.queries) if party in query.senders} or {WHOLE}

    def _collect(self, now: RoundInProgress) -> None:
        started = told = asked = time.monotonic()
        pause = ASK_AGAIN
        while missing := now.unanswered(now.waited_for):
            waited = time.monotonic() - started
            if waited > self.absence.patience and self.absence.then != "wait":
                return self._do_without(now, missing, waited)
            incoming = self.link.next(min(1.0, self.absence.patience))
            if incoming is not None:
                self._take(now, incoming)
            if time.monotonic() - told > 1.0:
                told = time.monotonic()
                self.notify("waiting", round=now.request.number, parties=missing, seconds=round(told - started))
            back = incoming is None and self.link.came_back.is_set()
            if back or time.monotonic() - asked > pause:
                self._ask_again(now, missing, start_over=back or pause > ASK_AGAIN)
                asked, pause = time.monotonic(), min(2 * pause, LONGEST_PAUSE)
        return None

    def _somebody_is_back(self, now: RoundInProgress) -> bool:
        """Whether somebody who counted as away has given a sign of life: it may refuse, so it is waited for after all.

        Of predictions only. Whatever has arrived is read before anything is made of the answers; so how long a party
        takes to refuse does not matter, only that it was heard. Nobody is waited for twice.
        """
        if not (now.request.consent or now.asks):
            return False
        until = time.monotonic() + (BACK if now.request.consent else 0.0)
        while now.unanswered(set(now.wanted) - now.waited_for):
            incoming = self.link.next(max(0.0, until - time.monotonic()))
            if incoming is not None:
                self._take(now, incoming)
            elif time.monotonic() >= until:
                break
        now.waited_for -= now.given_up
        return bool(now.unanswered(now.waited_for))

    def _ask_again(self, now: RoundInProgress, missing: Sequence[str], start_over: bool) -> None:
        """The same bytes again, only to those who have not answered.

        If that did not help, or the server was away, what it remembers is not relied on.
        """
        self.notify("asking again", round=now.request.number, parties=list(missing))
        self.link.came_back.clear()
        if start_over:
            self.link.lay(self.schema.parties, anew=True)
        own = now.down.own
        to_send = [Outgoing(p, released) for p in missing for released in (own.get(p), now.down.everyone) if released]
        self.link.send(*to_send, again=True)

    def _do_without(self, now: RoundInProgress, missing: list[str], waited: float) -> None:
        names = ", ".join(missing)
        self.notify("absent", round=now.request.number, parties=missing)
        if self.absence.then == "stop" and now.trains:
            raise Away(f"{names} did not answer within {waited:.0f} s in round {now.request.number}")
        now.waited_for -= set(missing)
        now.given_up |= set(missing)

    # -- what arrives -------------------------------------------------------------------------

    def _take(self, now: RoundInProgress, incoming: Incoming) -> None:
        sender = incoming.sender
        try:
            self._read(now, incoming, sender)
        except WireError as error:
            self.notify("refused", party=sender, round=now.request.number, reason=str(error))

    def _read(self, now: RoundInProgress, incoming: Incoming, sender: str) -> None:
        header, arrays = decode(incoming.data)
        kind, number, part = self._checked(header, sender)
        if not incoming.encrypted and number > 0 and kind != REFUSED:  # who has lost its keys can still say so
            raise WireError(f"a message {kind[:16]!r} that is not encrypted")
        if number > now.request.number:
            return self._read_early(now, incoming, number)
        if kind in RELEASES:
            arrays = self._numbers.read(header, arrays)
        self._heard.add(sender)
        now.waited_for.add(sender)  # a sign of life, whatever it is about: a party that was given up is back
        if kind == HERE:
            return None
        if kind == REFUSED and now.asks and number == now.request.number - 1:
            _raise(kind, sender, header)  # it was asked whether it would answer: nothing is made of the others' answers
        if number < now.request.number:
            return self._read_late(now, incoming, sender, (kind, number, part), arrays)
        if kind in (DIVERGED, REFUSED):
            _raise(kind, sender, header)
        if kind == DONE:
            part = self._whole(now, sender)
        else:
            self._check_roster(header)
            self._check_arrays(now, sender, kind, part, arrays)
        if part in now.wanted[sender] and (sender, part) not in now.came:
            now.came[sender, part] = Arrived(sender, incoming.data, arrays)
        else:
            self.notify("repetition", party=sender, round=number)
        return None

    def _whole(self, now: RoundInProgress, sender: str) -> int:
        """A party that says only "done" has no answer to give, or gave it so long ago that it has moved on."""
        if WHOLE not in now.wanted[sender]:
            raise RunError(
                f"party {sender!r} has long answered round {now.request.number}, and the coordinator's store does not "
                "know it: it is an old copy; put the newest one back"
            )
        return WHOLE

    def _checked(self, header: Mapping[str, Any], sender: str) -> tuple[str, int, int]:
        if sender not in self._agreed:
            raise WireError(f"a message of {sender[:64]!r}, who is not of this run")
        if header.get("run") != self.run:
            raise WireError(f"a message of run {str(header.get('run'))[:64]!r}; this is run {self.run!r}")
        if header.get("sender") != sender:
            raise WireError(f"a message of {sender!r} says it is from {str(header.get('sender'))[:64]!r}")
        kind: Any = header.get("kind")
        number: Any = header.get("number")
        part: Any = header.get("part", 0)
        numbers = type(number) is int and type(part) is int  # True would be an int, too, for isinstance
        if not isinstance(kind, str) or not numbers or not -MOST_ROUNDS < number < MOST_ROUNDS:
            raise WireError("the message does not say which round and what it answers")
        return kind, number, part

    def _check_roster(self, header: Mapping[str, Any]) -> None:
        if header.get("roster", "") != self.roster:
            raise WireError("an answer that was masked for other parties or with other keys")

    def _check_arrays(
        self, now: RoundInProgress, sender: str, kind: str, part: int, arrays: Mapping[str, Tensor]
    ) -> None:
        queries = now.request.queries
        if not 0 <= part < len(queries) or kind != queries[part].purpose.value or sender not in queries[part].senders:
            raise WireError(f"an answer {kind[:16]!r} to query {part}, which was not made to {sender!r}")
        self._check_shapes(sender, len(queries[part].rows), arrays)

    def _check_shapes(self, sender: str, rows: int, arrays: Mapping[str, Tensor]) -> None:
        agreed = self._agreed[sender]
        if arrays.keys() != agreed.keys():
            raise WireError(f"arrays {sorted(arrays)}; the run agreed on {sorted(agreed)}")
        for name, array in arrays.items():
            wanted, dtype = agreed[name].shape(rows), agreed[name].dtype or self.schema.dtype
            if self.roster:
                dtype = torch.int64  # masked
            if tuple(array.shape) != wanted or array.dtype != dtype:
                raise WireError(
                    f"array {name!r} is {array.dtype} of shape {tuple(array.shape)}; "
                    f"the run agreed on {dtype} of shape {wanted}"
                )

    def _read_late(
        self,
        now: RoundInProgress,
        incoming: Incoming,
        sender: str,
        what: tuple[str, int, int],
        arrays: Mapping[str, Tensor],
    ) -> None:
        """An answer to an earlier request: a repetition, or the word of a party that was given up for that round."""
        kind, number, _ = what
        if sender in self.away and kind == Purpose.TRAIN.value and number in self._rows_of:
            self._check_shapes(sender, self._rows_of[number], arrays)
            now.late.append((number, sender, arrays))
        else:
            self.notify("repetition", party=sender, round=number)

    def _read_early(self, now: RoundInProgress, incoming: Incoming, number: int) -> None:
        """Only the request after the one to stop may be answered already: an earlier life of this process sent it."""
        if now.request.stop is None or number != now.request.number + 1:
            raise WireError(f"an answer to round {number}, which has not been asked for; this is {now.request.number}")
        self._early.append(incoming)

    # -- what the coordinator gets ------------------------------------------------------------

    def _answers(self, now: RoundInProgress) -> Collected:
        uploaded, releases = [], []
        for at, query in enumerate(now.request.queries):
            came = {p: now.came[p, at] for p in self.schema.parties if (p, at) in now.came and p in query.senders}
            releases.append(list(came.values()))
            uploaded.append([self._uploaded(group.parties, came) for group in self.schema.groups])
        return Collected(uploaded, releases, tuple(sorted(self.away)), now.late)

    def _uploaded(self, parties: tuple[str, ...], came: Mapping[str, Arrived]) -> GroupUploads:
        present = [p for p in parties if p in came]
        if not present:
            return GroupUploads((), {})
        device = self.schema.device
        values = {n: torch.stack([came[p].arrays[n] for p in present]).to(device) for n in came[present[0]].arrays}
        return GroupUploads(tuple(parties.index(p) for p in present), values)

    # -- what other engines have in this process, and this one does not ------------------------

    def parties(self) -> list[PartySide]:
        """None live here."""
        return []

    @property
    def ways(self) -> list[Way]:
        """Each party decides for itself."""
        return []

    def tensors(self) -> dict[str, Tensor]:
        """Each party keeps its own state."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Each party restores its own state."""


def _raise(kind: str, sender: str, header: Mapping[str, Any]) -> None:
    facts = header.get("facts")
    reason = str(facts.get("reason", ""))[:500] if isinstance(facts, Mapping) else ""
    if kind == DIVERGED:
        raise Diverged(sender, "upload")
    raise Refused(f"party {sender!r} refuses: {reason or 'it gave no reason'}")
