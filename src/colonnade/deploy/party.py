"""The process of one party: it learns, speaks through its gate, stores what it said, sends it, and says done.

    on order n   n <= last?  the stored bytes again.    n = last + 1:
    keep, learn, speak + gate    ->  ONE transaction: model, ledger, outbox  ->  send  ->  acknowledge

Killed before the transaction, nothing has left; killed after it, the same bytes leave for ever. So it may be
killed at any moment and started again with the same command.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.deploy.agreement import AGREED, CLOSE, PROPOSAL, PROPOSED, SETTLED, Agreement, refusal
from colonnade.deploy.export import export
from colonnade.deploy.membership import Duty, Membership, in_short
from colonnade.deploy.sealing import own_keys, unopened
from colonnade.engines.base import numbers_of
from colonnade.engines.link import Link
from colonnade.engines.party import PartySide
from colonnade.engines.post import Letter, Post, Say
from colonnade.engines.remote import DIVERGED, DONE
from colonnade.errors import (
    ColonnadeError,
    ConfigError,
    DataError,
    Diverged,
    IdentityError,
    ModelError,
    RunError,
    Unwritable,
    WireError,
)
from colonnade.identity.credentials import Credentials
from colonnade.methods.base import Received
from colonnade.privacy.gate import Spoken, repeat
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Released
from colonnade.store import Store
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, MOST_EXCHANGES, Order, Purpose, read_order, unprefixed
from colonnade.wire.notice import Notice, notice_of

STORE = "party.db"
BEFORE = -2  # the number of a party that has agreed to nothing yet

Parts = dict[str, tuple[Letter, Mapping[str, Any], dict[str, Tensor]]]  # kind -> letter, header, arrays


class PartyProcess:
    """One party in one run."""

    def __init__(self, folder: Path, link: Link, credentials: Credentials, duty: Duty, say: Say) -> None:
        self.me, self.run, self.link, self.say = credentials.name, link.run, link, say
        self.store, self.ledger = Store(folder / STORE), Ledger()
        self.member = Membership(self.run, credentials, duty, own_keys(folder))
        self.number, self.finished = BEFORE, ""
        self.side: PartySide | None = None
        self._notice: dict[str, str] = {}  # said instead of a release in the last exchange
        self._spoke = 0.0  # when the last answer had left
        self._pool: dict[int, Parts] = {}  # messages of orders that are not complete yet
        if self.store.begun:
            self._reopen()

    # -- the loop -----------------------------------------------------------------------------

    def serve(self, once: bool = False) -> str:
        """Answer until the run is closed (`once`), or until interrupted."""
        self.link.listen()
        self.say("listening", run=self.run, note="for a proposal" if self.side is None else "")
        while True:
            letter = self.link.next(1.0)
            if letter is not None and self.handle(letter):
                if once:
                    return self.finished
                self.say("staying", run=self.run, note="to answer predictions, until stopped")

    def handle(self, letter: Letter) -> bool:
        """Take one message; true if the run is over. Whatever is in it, it changes nothing or is carried out whole."""
        try:
            if (number := unopened(letter)) is not None:
                told = f"party {self.me!r} has no record of this run; put its folder back or begin anew"
                self._refuse(number, RunError(told))
                self.link.done([letter])
                return False
            header, arrays = decode(letter.data)
            kind, number = self._checked(header, letter.sealed)
            if kind in ("ALL", "OWN"):
                self._take(letter, kind, number, header, arrays)
                return False
            self._hear(kind, notice_of(header, {name: array.numpy().tobytes() for name, array in arrays.items()}))
            self.link.done([letter])
            return kind == CLOSE
        except (WireError, IdentityError) as error:
            self.say("refused", party=COORDINATOR, reason=str(error))
            self.link.refuse(letter)
            return False

    def _checked(self, header: Mapping[str, Any], sealed: bool) -> tuple[str, int]:
        if header.get("run") != self.run or header.get("sender") != COORDINATOR:
            raise WireError(
                f"a message of {str(header.get('sender'))[:64]!r} in run {str(header.get('run'))[:64]!r}; "
                f"this party listens to the coordinator of {self.run!r}"
            )
        if header.get("to", self.me) != self.me:
            raise WireError(f"a message for {str(header.get('to'))[:64]!r}")
        kind, number = header.get("kind"), header.get("number")
        if not isinstance(kind, str) or type(number) is not int or abs(number) > MOST_EXCHANGES:
            raise WireError("the message does not say what it is")
        if not sealed and kind not in (PROPOSAL, AGREED):
            raise WireError(f"a message {kind[:32]!r} that is not sealed")
        return kind, number

    def _hear(self, kind: str, notice: Notice) -> None:
        if kind == PROPOSAL:
            self._consider(notice)
        elif kind == AGREED:
            self._agree(notice)
        elif kind == CLOSE:
            self._tell(DONE, notice.number)
            self.say("closed", run=self.run, reason=self.finished)
        else:
            raise WireError(f"a message of unknown kind {kind[:32]!r}")

    # -- agreeing -----------------------------------------------------------------------------

    def _consider(self, notice: Notice) -> None:
        """Join a proposal, or say why not."""
        try:
            proposal = self.member.read(notice)
            self.say("proposal", digest=proposal.digest[:12], **in_short(proposal))
            consent = self.member.consider(proposal)
        except ColonnadeError as error:
            return self._refuse(PROPOSED, error, unsealed=True)
        self.say("joined", digest=proposal.digest[:12])
        return self.link.send(Post(COORDINATOR, consent, open=True))

    def _agree(self, notice: Notice) -> None:
        """Store the agreement; from here on the party belongs to the run, and everything is sealed."""
        if self.member.agreement is None:
            try:
                agreement = self.member.agree(notice)
            except ColonnadeError as error:
                return self._refuse(SETTLED, error, unsealed=True)
            columns = self.member.adopt(agreement)
            self.store.describe({"agreement": agreement.to_json(), "columns": columns})
            self.side, self.number = self._open_side(), SETTLED
            self._commit([])
            self.link.seals = self.member.seals(agreement)
            self.say("agreed", run=self.run, parties=list(agreement.proposal.parties))
        return self._tell(DONE, SETTLED, unsealed=True)

    def _reopen(self) -> None:
        """Go on where the store says."""
        about = self.store.about()
        agreement = Agreement.from_json(about["agreement"])
        if self.member.adopt(agreement) != about["columns"]:
            raise RunError(
                f"the table of {self.me!r} is not the one that run {self.run!r} began with; "
                "put it back, or begin a new run under another name"
            )
        self.link.seals = self.member.seals(agreement)
        self._restore()
        if self.finished:
            self._export()  # it may have died between its last commit and this
        self.say("reopened", exchange=self.number, finished=self.finished)

    def _open_side(self) -> PartySide:
        """This party's side of the run; what fails in its computing is, with noise, for its own operator alone."""
        side = self.member.open_side(self.ledger)
        side.tell = lambda reason: self.say("kept to itself", reason=reason)
        return side

    def _restore(self) -> None:
        """Everything as it was committed last."""
        saved = self.store.snapshot()
        self.ledger = Ledger(saved.ledger if saved else ())
        self.side, self.number = self._open_side(), SETTLED
        if saved is not None:
            self.side.restore(saved.tensors | self._said(saved.facts["number"]))
            facts = saved.facts
            self.number, self.finished, self._notice = facts["number"], facts["finished"], facts["notice"]

    def _said(self, number: int) -> dict[str, Tensor]:
        """What was said in the last training turn, from the outbox: nothing is written twice."""
        if self.member.sums:
            return {}  # what left is masked
        for _, kind, payload in self.store.sent(number):
            if kind == Purpose.TRAIN.value:
                said = numbers_of(self._side.cohort.schema).read(*decode(payload))
                return {f"said.{name}": array[None] for name, array in said.items()}
        return {}

    # -- an order -----------------------------------------------------------------------------

    def _take(
        self, letter: Letter, kind: str, number: int, header: Mapping[str, Any], arrays: dict[str, Tensor]
    ) -> None:
        """One part of an order: carry it out when all parts are there; repeat what was answered before."""
        if number <= self.number:
            if kind == "ALL" and letter.at > self._spoke:  # or it was asked while the answer was being sent
                self._repeat(number)
            return self.link.done([letter])
        parts = self._pool.setdefault(number, {})
        if kind in parts:
            return self.link.forget(letter)
        parts[kind] = (letter, header, arrays)
        if "ALL" in parts and ("OWN" in parts or not self._has_own(parts["ALL"][1])):
            self._work(number, parts)
        return None

    def _has_own(self, header: Mapping[str, Any]) -> bool:
        """Whether a part of the order is for this party alone: it goes to those who learn."""
        learners = header.get("learners")
        return bool(header.get("own")) and (learners == "*" or (isinstance(learners, list) and self.me in learners))

    def _work(self, number: int, parts: Parts) -> None:
        letters = [letter for n in list(self._pool) if n <= number for letter, *_ in self._pool.pop(n).values()]
        try:
            schema, (_, header, arrays) = self._side.cohort.schema, parts["ALL"]
            order, numbers = read_order(header, arrays, schema.parties), numbers_of(schema).reply(number)
            self._check_sequence(order)
            own = numbers.read(*parts["OWN"][1:]) if "OWN" in parts else {}
            self._carry_out(order, numbers.read(header, arrays), own, letters)
        except Unwritable:
            raise  # nothing was sent: the operator sees to the disk, the order comes again
        except ColonnadeError as error:
            self._restore()  # nothing of a refused order stays
            self._refuse(number, error)
            self.link.done(letters)

    def _check_sequence(self, order: Order) -> None:
        """Orders come one by one; who missed some, where the run went on without it, cannot learn from the last."""
        missed_well = self.finished or (self.member.goes_on and self.me not in order.learners)
        if order.number > self.number + 1 and not missed_well:
            raise RunError(
                f"party {self.me!r} has carried out exchange {self.number} and is asked for {order.number}: its store "
                "is an old copy; put the newest one back"
            )

    def _carry_out(
        self, order: Order, arrays: dict[str, Tensor], own: dict[str, Tensor], letters: Sequence[Letter]
    ) -> None:
        side = self._side
        self.member.check_order(order)
        if order.consent:
            return self._consent(order, letters)
        common = {k: v.to(side.cohort.device) for k, v in unprefixed("common", arrays).items()}
        reply = Received(common, {k: v.unsqueeze(0).to(side.cohort.device) for k, v in own.items()})
        before, self._notice = len(self.ledger), {}
        spoken = self._answer(side, order, reply)
        if order.stop is not None:
            side.use_best()
            self.finished = order.stop
        sent = [(part, s.releases[0]) for part, s in enumerate(spoken) if s.releases]
        self.number = order.number
        self._commit(sent, before)
        if self.finished:
            self._export()
        self._send(sent, letters)
        size = sum(len(released.payload) for _, released in sent)
        self.say("answered", exchange=order.number, bytes=size)
        rows = sum(len(ask.rows) for ask in order.asks if ask.purpose is Purpose.PREDICT and self.me in ask.speakers)
        if rows:
            self.say("predicted", exchange=order.number, rows=rows)
        return None

    def _consent(self, order: Order, letters: Sequence[Letter]) -> None:
        """It would be answered. Nothing is computed or stored; asked again, the answer is the same."""
        self.say("consenting", exchange=order.number, rows=sum(len(ask.rows) for ask in order.asks))
        self._tell(DONE, order.number)
        self.link.done(letters)

    def _answer(self, side: PartySide, order: Order, reply: Received) -> list[Spoken]:
        try:
            return side.answer(order, reply)
        except Diverged as error:
            self._notice = {"kind": DIVERGED, "reason": str(error)}
            return []
        except ColonnadeError:
            raise
        except Exception as error:  # a reply that the method cannot use: arrays missing, other shapes
            raise WireError(f"order {order.number} cannot be carried out: {type(error).__name__}") from error

    @property
    def _side(self) -> PartySide:
        if self.side is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        return self.side

    def _commit(self, sent: list[tuple[int, Released]], before: int = 0) -> None:
        facts = {"number": self.number, "finished": self.finished, "notice": self._notice}
        in_outbox = not self.member.sums and any(released.kind == Purpose.TRAIN.value for _, released in sent)
        tensors = self._side.tensors(said=not in_outbox)
        self.store.commit(facts, tensors, ledger=self.ledger.since(before), outbox=sent)

    def _export(self) -> None:
        about = {"proposal": self.store.about()["agreement"]["proposal"], "stop": self.finished}
        export(self.store.path.parent, about, self.member.part(self._side.models()[self.me]), self.ledger)

    # -- speaking -----------------------------------------------------------------------------

    def _send(self, sent: list[tuple[int, Released]], letters: Sequence[Letter] = ()) -> None:
        posts = [Post(COORDINATOR, released, part) for part, released in sent]
        if not posts:
            reason = {"reason": self._notice["reason"]} if self._notice else {}
            posts = [Post(COORDINATOR, Notice(self.run, self.number, self._notice.get("kind", DONE), self.me, reason))]
        self.link.send(*posts, answers=letters)
        self._spoke = time.monotonic()

    def _repeat(self, number: int) -> None:
        """A question that was answered: the same bytes again; of older ones nothing is left but that they are done."""
        self.say("repeating", exchange=number)
        if number < self.number:
            return self._tell(DONE, number)
        stored = self.store.sent(number)
        sent = [(p, repeat(self.ledger, self.me, kind, number, payload)) for p, kind, payload in stored]
        return self._send(sent)

    def _tell(self, kind: str, number: int, facts: Mapping[str, Any] | None = None, unsealed: bool = False) -> None:
        notice = Notice(self.run, number, kind, self.me, facts or {})
        self.link.send(Post(COORDINATOR, notice, open=unsealed))

    def _refuse(self, number: int, error: ColonnadeError, unsealed: bool = False) -> None:
        """Tell the coordinator why not; what is wrong with this party's own table is only for its own operator."""
        self.say("refusing", exchange=number, reason=str(error))
        own = isinstance(error, (DataError, ConfigError, ModelError))
        told = f"party {self.me!r} has a problem of its own; its operator sees which" if own else str(error)
        notice = refusal(self.run, number, self.me, told)
        self.link.send(Post(COORDINATOR, notice, open=unsealed or self.link.seals is None))
