"""The process of one party: it learns, speaks through its gate, stores what it said, sends it, and says done.

    on order n   n <= last?  the stored bytes again.    n = last + 1:
    keep, learn, speak + gate    ->  ONE transaction: model, ledger, outbox  ->  send  ->  acknowledge

Killed before the transaction, nothing has left; killed after it, the same bytes leave for ever. So it may be
killed at any moment and started again with the same command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.deploy.agreement import (
    AGREED,
    CLOSE,
    PROPOSAL,
    PROPOSED,
    SETTLED,
    Agreement,
    Proposal,
    join,
    read_agreement,
    read_proposal,
    refusal,
)
from colonnade.deploy.policy import Policy, check_prediction, check_run
from colonnade.engines.base import Encoders, Introduction, Workshop, introduce, open_module
from colonnade.engines.nats import Link
from colonnade.engines.party import PartySide
from colonnade.engines.post import Letter, Post, Say
from colonnade.engines.remote import DIVERGED, DONE
from colonnade.errors import ColonnadeError, Diverged, IdentityError, Refused, RunError, WireError
from colonnade.federation import Federation, Party, RowSplit, Task
from colonnade.identity.credentials import Credentials
from colonnade.methods.base import Received
from colonnade.models.schema import Schema
from colonnade.privacy.gate import Gate, Mechanism, Spoken, Unchanged, repeat
from colonnade.privacy.ledger import Ledger
from colonnade.run import DTYPES
from colonnade.schedule import Schedule
from colonnade.store import Store
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Order, Purpose, read_order, unprefixed
from colonnade.wire.notice import Notice, notice_of

STORE = "party.db"
BEFORE = -2  # the number of a party that has agreed to nothing yet


@dataclass(frozen=True)
class Columns:
    """What a party holds: columns (R, ...) by row number, and which of those rows it really has."""

    values: Tensor = field(repr=False)
    held: Tensor = field(repr=False)  # (R,) true or false
    scaled: bool = False

    def digest(self) -> str:
        """SHA-256, so that a restart with another table is noticed."""
        shape = f"{tuple(self.values.shape)}{self.values.dtype}".encode()
        return hashlib.sha256(shape + self.values.contiguous().numpy().tobytes()).hexdigest()


@dataclass(frozen=True)
class Duty:
    """What a party brings: its columns (given the training rows), limits, noise, network and device."""

    columns: Callable[[Tensor, int], Columns]
    policy: Policy = field(default_factory=Policy)
    mechanism: Mechanism = field(default_factory=Unchanged)
    encoders: Encoders = None
    device: str = "cpu"
    alignment: str = ""  # digest of the rows it aligned; empty: not checked


class PartyProcess:
    """One party in one run."""

    def __init__(self, folder: Path, link: Link, credentials: Credentials, duty: Duty, say: Say) -> None:
        self.me, self.run = credentials.name, link.run
        self.link, self.credentials, self.duty, self.say = link, credentials, duty, say
        self.store = Store(folder / STORE)
        self.ledger = Ledger()
        self.number, self.finished = BEFORE, ""
        self.proposal: Proposal | None = None
        self.agreement: Agreement | None = None
        self._columns: Columns | None = None
        self._pool: dict[int, dict[str, tuple[Letter, dict[str, Any], dict[str, Tensor]]]] = {}
        self._notice: dict[str, Any] = {}  # said instead of a release in the last exchange
        if self.store.begun:
            self._reopen()

    # -- the loop -----------------------------------------------------------------------------

    def serve(self, once: bool = False) -> str:
        """Answer until the run is closed (`once`), or until interrupted."""
        self.link.listen()
        while True:
            letter = self.link.next(1.0)
            if letter is not None and self.handle(letter) and once:
                return self.finished

    def handle(self, letter: Letter) -> bool:
        """Take one message; true if the run is over. Whatever is in it, it changes nothing or is carried out whole."""
        try:
            header, arrays = decode(letter.data)
            kind, number = self._checked(header)
            return self._dispatch(letter, kind, number, header, arrays)
        except (WireError, IdentityError) as error:
            self.say("refused", party=COORDINATOR, reason=str(error))
            self.link.refuse(letter)
            return False

    def _checked(self, header: Mapping[str, Any]) -> tuple[str, int]:
        if header.get("run") != self.run or header.get("sender") != COORDINATOR:
            raise WireError(
                f"a message of {str(header.get('sender'))[:64]!r} in run {str(header.get('run'))[:64]!r}; "
                f"this party listens to the coordinator of {self.run!r}"
            )
        if header.get("to", self.me) != self.me:
            raise WireError(f"a message for {str(header.get('to'))[:64]!r}")
        kind, number = header.get("kind"), header.get("number")
        if not isinstance(kind, str) or type(number) is not int:
            raise WireError("the message does not say what it is")
        return kind, number

    def _dispatch(
        self, letter: Letter, kind: str, number: int, header: dict[str, Any], arrays: dict[str, Tensor]
    ) -> bool:
        if kind in (PROPOSAL, AGREED, CLOSE):
            notice = notice_of(header, {name: array.numpy().tobytes() for name, array in arrays.items()})
            {PROPOSAL: self._consider, AGREED: self._agree, CLOSE: self._close}[kind](notice)
            self.link.done([letter])
            return kind == CLOSE
        if kind not in ("ALL", "OWN"):
            raise WireError(f"a message of unknown kind {kind[:32]!r}")
        if self.agreement is None:
            self.link.done([letter])
            if kind == "ALL":
                self._refuse(number, f"party {self.me!r} has no record of this run; put its folder back, or begin anew")
        elif number <= self.number:
            if kind == "ALL":
                self._repeat(number)
            self.link.done([letter])
        else:
            parts = self._pool.setdefault(number, {})
            if kind in parts:
                self.link.forget(letter)
            else:
                parts[kind] = (letter, header, arrays)
                self._work(number)
        return False

    # -- agreeing -----------------------------------------------------------------------------

    def _consider(self, notice: Notice) -> None:
        """Check a proposal against the operator's policy and one's own data; join, or say why not."""
        try:
            proposal = read_proposal(notice, self.credentials)
            if self.agreement is not None:
                if proposal.digest != self.agreement.proposal.digest:
                    raise Refused(f"run {self.run!r} began with another proposal; choose another name for a new run")
                return self.link.send(Post(COORDINATOR, self._join(proposal)), again=True)
            self._check_proposal(proposal)
            self.say("proposal", digest=proposal.digest[:12], **_told(proposal))
            self.proposal = proposal
            self._columns = self._read_columns(proposal)
            self.link.send(Post(COORDINATOR, self._join(proposal)), again=True)
            self.say("joined", digest=proposal.digest[:12])
        except ColonnadeError as error:
            self.proposal = None if self.agreement is None else self.proposal
            self._refuse(PROPOSED, str(error))

    def _check_proposal(self, proposal: Proposal) -> None:
        body = proposal.body
        if self.me not in proposal.parties:
            raise Refused(f"{self.me!r} is not among the parties of the proposal: {', '.join(proposal.parties)}")
        if self.duty.alignment and body.get("alignment") != self.duty.alignment:
            raise Refused(
                f"the proposal is about the rows of another alignment ({str(body.get('alignment'))[:12]}) than the one "
                f"this party has ({self.duty.alignment[:12]}); align again, all together"
            )
        if body.get("mechanism") != self.duty.mechanism.name:
            raise Refused(
                f"the proposal wants mechanism {body.get('mechanism')!r} between columns and wire; "
                f"this party is set to {self.duty.mechanism.name!r}"
            )
        check_run(self.duty.policy, body)

    def _read_columns(self, proposal: Proposal) -> Columns:
        columns = self.duty.columns(proposal.train, int(proposal.body["rows"]))
        rows = int(proposal.body["rows"])
        if len(columns.values) < rows or not bool(columns.held[:rows].all()):
            raise Refused(f"the proposal speaks of {rows} rows; this party has {int(columns.held.sum())}; align again")
        return columns

    def _join(self, proposal: Proposal) -> Notice:
        return join(proposal, self._introduction(proposal), self.credentials)

    def _introduction(self, proposal: Proposal) -> Introduction:
        dtype = DTYPES[proposal.training().dtype]
        return introduce(self.me, self._module(proposal), self._shape, dtype)

    @property
    def _shape(self) -> tuple[int, ...]:
        if self._columns is None:
            raise RunError("the columns are not read yet")
        return tuple(self._columns.values.shape[1:])

    def _module(self, proposal: Proposal) -> torch.nn.Module:
        training = proposal.training()
        model, dtype = proposal.model(), DTYPES[training.dtype]
        return open_module(self.duty.encoders, model, self.me, self._shape, training.seed, dtype)

    def _agree(self, notice: Notice) -> None:
        """Store the agreement; from here on the party belongs to the run."""
        if self.agreement is None:
            if self.proposal is None or self._columns is None:
                return self._refuse(SETTLED, f"party {self.me!r} has not joined a proposal of run {self.run!r}")
            agreement = read_agreement(notice, self.proposal, self._introduction(self.proposal), self.credentials)
            self.store.describe({"agreement": agreement.to_json(), "columns": self._columns.digest()})
            self.agreement = agreement
            self.side = self._open_side(agreement)
            self.number = SETTLED
            self._commit([])
            self.say("agreed", run=self.run, parties=list(agreement.proposal.parties))
        return self._done(SETTLED)

    # -- opening and reopening ----------------------------------------------------------------

    def _open_side(self, agreement: Agreement) -> PartySide:
        proposal, columns = agreement.proposal, self._columns
        if columns is None:
            raise RunError("the columns are not read yet")
        training, model, method = proposal.training(), proposal.model(), proposal.method()
        schema = agreement.schema(torch.device(self.duty.device))
        group = schema.groups[schema.position(self.me)[0]]
        gate = Gate(self.run, self.ledger, method.says(schema, group), self.duty.mechanism)
        scale = not columns.scaled if model.scale_columns == "auto" else model.scale_columns == "always"
        workshop = Workshop(self._federation(columns, schema), schema, {self.me: self._module(proposal)}, scale)
        speaks = method.hears != "nothing"
        schedule = Schedule(training.schedule, schema.train, schema.parties, training.seed, speaks)
        remembers = schedule.someone_may_be_silent or proposal.body["absence"]["then"] == "continue"
        return PartySide(method, workshop.cohort((self.me,)), gate, remembers)

    def _federation(self, columns: Columns, schema: Schema) -> Federation:
        """This party's part of the federation: its own columns, nobody's labels."""
        none = torch.empty(0, dtype=torch.int64)
        split = RowSplit(schema.train, none, none)
        party = Party(self.me, columns.values)
        return Federation((party,), none, schema.outputs, Task.REGRESSION, split, scaled=columns.scaled)

    def _reopen(self) -> None:
        """Go on where the store says."""
        about = self.store.about()
        self.agreement = Agreement.from_json(about["agreement"])
        self.proposal = self.agreement.proposal
        self._columns = self._read_columns(self.proposal)
        if self._columns.digest() != about["columns"]:
            raise RunError(
                f"the table of {self.me!r} is not the one that run {self.run!r} began with; "
                "put it back, or begin a new run under another name"
            )
        self._restore()
        self.say("reopened", exchange=self.number, finished=self.finished)

    def _restore(self) -> None:
        """The side as it was committed last."""
        if self.agreement is None:
            raise RunError("there is no agreement to restore")
        saved = self.store.snapshot()
        self.ledger = Ledger(saved.ledger if saved else ())
        self.side = self._open_side(self.agreement)
        self.number = SETTLED
        if saved is not None:
            self.side.restore(saved.tensors)
            facts = saved.facts
            self.number, self.finished, self._notice = facts["number"], facts["finished"], facts["notice"]

    # -- an order -----------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        """Carry out the next order, if all of it is there."""
        parts = self._pool.get(number, {})
        if "ALL" not in parts:
            return
        _, header, arrays = parts["ALL"]
        if header.get("own") and "OWN" not in parts:
            return
        own = parts["OWN"][2] if "OWN" in parts else {}
        letters = [letter for n in list(self._pool) if n <= number for letter, *_ in self._pool.pop(n).values()]
        try:
            self._check_sequence(number)
            self._carry_out(header, arrays, own)
        except ColonnadeError as error:
            self._restore()  # nothing of a refused order stays
            self._refuse(number, str(error))
        self.link.done(letters)

    def _check_sequence(self, number: int) -> None:
        """Orders come one by one; only where a run goes on without an absent party may it have missed some."""
        goes_on = self.agreement is not None and self.agreement.proposal.body["absence"]["then"] == "continue"
        if number > self.number + 1 and not (goes_on or self.finished):  # after training nothing depends on the last
            raise RunError(
                f"party {self.me!r} has carried out exchange {self.number} and is asked for {number}: its store is "
                "an old copy; put the newest one back"
            )

    def _carry_out(self, header: dict[str, Any], arrays: dict[str, Tensor], own: dict[str, Tensor]) -> None:
        order = read_order(header, arrays, self.side.cohort.schema.parties)
        self._check_order(order)
        device = self.side.cohort.device
        common = {k: v.to(device) for k, v in unprefixed("common", arrays).items()}
        reply = Received(common, {k: v.unsqueeze(0).to(device) for k, v in own.items()})
        before, self._notice = len(self.ledger), {}
        spoken: list[Spoken] = []
        try:
            spoken = self.side.answer(order, reply)
        except Diverged as error:
            self._notice = {"kind": DIVERGED, "reason": str(error)}
        except ColonnadeError:
            raise
        except Exception as error:  # a reply that the method cannot use: arrays missing, other shapes
            raise WireError(f"order {order.number} cannot be carried out: {type(error).__name__}: {error}") from None
        if order.stop is not None:
            self.side.use_best()
            self.finished = order.stop
        sent = [(part, s.releases[0]) for part, s in enumerate(spoken) if s.releases]
        self.number = order.number
        self._commit(sent, before)
        self._send(sent)
        self._tell(order, sent)

    def _check_order(self, order: Order) -> None:
        rows = len(self._columns.held) if self._columns is not None else 0
        purposes = self.agreement.proposal.body["purposes"] if self.agreement else []
        for ask in order.asks:
            if ask.purpose.value not in purposes:
                raise Refused(f"the run did not agree on purpose {ask.purpose.value}")
            if ask.purpose in (Purpose.PREDICT, Purpose.EXPLAIN) and self.me in ask.speakers:
                check_prediction(self.duty.policy, len(ask.rows), ask.purpose.value)
            if len(ask.rows) and (int(ask.rows.min()) < 0 or int(ask.rows.max()) >= rows):
                raise WireError(f"order {order.number} asks about row {int(ask.rows.max())}; there are {rows}")
            if self.me in ask.speakers and self._columns and not bool(self._columns.held[ask.rows].all()):
                raise Refused(f"order {order.number} asks about rows that {self.me!r} does not have")

    def _commit(self, sent: list[tuple[int, Any]], before: int = 0) -> None:
        facts = {"number": self.number, "finished": self.finished, "notice": self._notice}
        self.store.commit(facts, self.side.tensors(), ledger=self.ledger.since(before), outbox=sent)

    def _send(self, sent: list[tuple[int, Any]], again: bool = False) -> None:
        if sent:
            self.link.send(*(Post(COORDINATOR, released, part) for part, released in sent), again=again)
        elif self._notice:
            kind, reason = self._notice["kind"], self._notice["reason"]
            self.link.send(Post(COORDINATOR, Notice(self.run, self.number, kind, self.me, {"reason": reason})))
        else:
            self._done(self.number, again)

    def _repeat(self, number: int) -> None:
        """A question that was answered: the same bytes again; of older ones nothing is left but that they are done."""
        self.say("repeating", exchange=number)
        if number < self.number:
            return self._done(number)
        stored = self.store.sent(self.number)
        sent = [(p, repeat(self.ledger, self.me, kind, self.number, payload)) for p, kind, payload in stored]
        return self._send(sent, again=True)

    def _done(self, number: int, again: bool = True) -> None:
        self.link.send(Post(COORDINATOR, Notice(self.run, number, DONE, self.me)), again=again)

    def _refuse(self, number: int, reason: str) -> None:
        self.say("refusing", exchange=number, reason=reason)
        self.link.send(Post(COORDINATOR, refusal(self.run, number, self.me, reason)), again=True)

    def _close(self, notice: Notice) -> None:
        self._done(notice.number)
        self.say("closed", run=self.run, reason=self.finished)

    def _tell(self, order: Order, sent: list[tuple[int, Any]]) -> None:
        bytes_sent = sum(len(released.payload) for _, released in sent)
        self.say("answered", exchange=order.number, bytes=bytes_sent, finished=self.finished)


def _told(proposal: Proposal) -> dict[str, Any]:
    """What an operator wants to see of a proposal."""
    body = proposal.body
    keys = ("rows", "parties", "label_exposure", "purposes", "mechanism")
    return {"method": body["method"]["name"], "rounds": body["training"]["rounds"], **{k: body.get(k) for k in keys}}
