"""The process of one party: it learns, uploads through its gate, stores what leaves, sends it, and says done.

    on request n   n <= last?  the stored bytes again.    n = last + 1:
    keep, learn, upload + gate   ->  ONE transaction: model, ledger, outbox  ->  table ledger  ->  send  ->  acknowledge

Killed before the transaction, nothing has left; killed after it, the stored bytes are sent again. So it may be
killed at any moment and started again with the same command. The table ledger (`table_ledger.py`) is outside of the
party's folder: an old copy of the folder does not answer anything twice.

Masks are addressed by all that was asked so far, too (`transcript`): a party that was put back and asked something
else uses masks that nobody else has, and nothing opens.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.deploy.account import Account
from colonnade.deploy.agreement import AGREED, CLOSE, PROPOSAL, PROPOSED, SETTLED, Agreement
from colonnade.deploy.budget import ledger_beside
from colonnade.deploy.considering import Considering
from colonnade.deploy.decision import for_record
from colonnade.deploy.encryption import own_keys, unopened
from colonnade.deploy.export import export, export_ledger
from colonnade.deploy.header import check_header, has_own
from colonnade.deploy.membership import Membership
from colonnade.deploy.party_notices import PartyNotices
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.signing import check_own, head_signer
from colonnade.deploy.table_ledger import TableLedger
from colonnade.engines.base import known_rows, numbers_of
from colonnade.engines.link import Link
from colonnade.engines.message import Incoming, Notify, Outgoing
from colonnade.engines.party import PartySide
from colonnade.engines.remote import DIVERGED, DONE, HERE
from colonnade.errors import ColonnadeError, Diverged, IdentityError, RunError, Unwritable, WireError
from colonnade.identity.credentials import Credentials
from colonnade.methods.base import Received
from colonnade.privacy.gate import Passed, repeat
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Release
from colonnade.store import Store
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Purpose, Request, read_common, read_own, read_request
from colonnade.wire.notice import Notice, notice_of

STORE = "party.db"
BEFORE = -2  # the number of a party that has agreed to nothing yet

Parts = dict[str, tuple[Incoming, Mapping[str, Any], dict[str, Tensor]]]  # kind -> message, header, arrays


class PartyProcess:
    """One party in one run."""

    def __init__(self, folder: Path, link: Link, credentials: Credentials, setup: PartySetup, notify: Notify) -> None:
        self.me, self.run, self.link, self.notify = credentials.name, link.run, link, notify
        self.store, self.ledger = Store(folder / STORE, head_signer(credentials, link.run)), Ledger()
        self._credentials, self._notices = credentials, PartyNotices(link, credentials.name, notify)
        self.spent = TableLedger(setup.spent or ledger_beside(folder))
        self.member = Membership(folder, self.run, credentials, setup, own_keys(folder), self.spent)
        self._proposals = Considering(folder, self.member, notify)
        self.number, self.finished = BEFORE, ""
        self.account: Account | None = None  # of the run in the table ledger, once there is one
        self.transcript = ""  # digest of all requests up to the stop
        self._entered, self._predicted = 0, list[int]()  # the last message known to be in the account; rows of this one
        self.side: PartySide | None = None
        self._notice: dict[str, str] = {}  # sent instead of a release in the last round
        self._spoke = 0.0  # when the last answer had left
        self._outdated = False  # the files for people lack the last releases
        self._pool: dict[int, Parts] = {}  # messages of requests that are not complete yet
        self.turn: AbstractContextManager[Any] = nullcontext()  # held while it trains
        if self.store.begun:
            self._reopen()

    # -- the loop -----------------------------------------------------------------------------

    def serve(self, once: bool = False) -> str:
        """Answer until the run is closed (`once`), or until interrupted."""
        self.listen()
        while True:
            incoming = self.next(1.0)
            if incoming is None:
                self.tidy()
            elif self.handle(incoming):
                if once:
                    return self.finished
                self.notify("staying", run=self.run, note="to answer predictions, until stopped")

    def listen(self) -> None:
        """Begin to receive, and say so."""
        self.link.listen()
        self.notify("listening", run=self.run, note="for a proposal" if self.side is None else "")
        self._say_here()

    def next(self, seconds: float) -> Incoming | None:
        """The next message, or None if none comes in time."""
        incoming = self.link.next(seconds)
        if self.link.came_back.is_set():
            self.link.came_back.clear()
            self._say_here()
        return incoming

    def _say_here(self) -> None:
        """Predictions do not wait for a party that was away until it is heard: now they do, and a refusal counts."""
        if self.finished:
            self._notices.tell(HERE, SETTLED)

    def tidy(self) -> None:
        """Write the files for people again, if something left since: while nobody asks, for it takes its time.

        What left is in the store already; killed before this, a party writes them when it is started again.
        """
        if self._outdated:
            self._outdated = False
            if not export_ledger(self.store, self.ledger):
                self._export()

    def handle(self, incoming: Incoming) -> bool:
        """Take one message; true if the run is over. Whatever is in it, it changes nothing or is carried out whole."""
        try:
            if (number := unopened(incoming)) is not None:
                told = f"party {self.me!r} has no record of this run; put its folder back or begin anew"
                self._notices.refuse(number, RunError(told))
                self.link.done([incoming])
                return False
            header, arrays = decode(incoming.data)
            kind, number = check_header(header, incoming.encrypted, self.run, self.me)
            if kind in ("ALL", "OWN"):
                self._take(incoming, kind, number, header, arrays)
                return False
            self._hear(kind, notice_of(header, {name: array.numpy().tobytes() for name, array in arrays.items()}))
            self.link.done([incoming])
            return kind == CLOSE
        except (WireError, IdentityError) as error:
            self.notify("refused", party=COORDINATOR, reason=str(error))
            self.link.refuse(incoming)
            return False

    def _hear(self, kind: str, notice: Notice) -> None:
        if kind == PROPOSAL:
            self._consider(notice)
        elif kind == AGREED:
            self._agree(notice)
        elif kind == CLOSE:
            self.tidy()
            self._notices.tell(DONE, notice.number)
            self.notify("closed", run=self.run, reason=self.finished)
        else:
            raise WireError(f"a message of unknown kind {kind[:32]!r}")

    # -- agreeing -----------------------------------------------------------------------------

    def _consider(self, notice: Notice) -> None:
        """Join a proposal, wait for a person, or say why not."""
        try:
            answer = self._proposals.answer(notice)
        except ColonnadeError as error:
            return self._notices.refuse(PROPOSED, error, unencrypted=True)
        return self.link.send(Outgoing(COORDINATOR, answer, unencrypted=True))

    def _agree(self, notice: Notice) -> None:
        """Store the agreement; from here on the party belongs to the run, and everything is encrypted."""
        if self.member.agreement is None:
            try:
                agreement = self.member.agree(notice)
            except ColonnadeError as error:
                return self._notices.refuse(SETTLED, error, unencrypted=True)
            columns, gone = self.member.adopt(agreement), self.member.left_out.tolist()
            self.store.describe({"agreement": agreement.to_json(), "columns": columns, "withdrawn": gone})
            self.account = Account(self.spent, agreement.proposal, self.member.note_spent)
            self.side, self.number = self._open_side(), SETTLED
            self._commit([])
            self.link.encryption = self.member.encryption(agreement)
            self.notify("agreed", run=self.run, parties=list(agreement.proposal.parties))
        return self._notices.tell(DONE, SETTLED, unencrypted=True)

    def _reopen(self) -> None:
        """Go on where the store says."""
        about = self.store.about()
        check_own(self.store.lines(), self.store.signed_head(), self._credentials, self.store.path)
        agreement = Agreement.from_json(about["agreement"])
        self.member.left_out = self.member.left_out.new_tensor(about.get("withdrawn", []))
        if self.member.adopt(agreement) != about["columns"]:
            raise RunError(
                f"the table of {self.me!r} is not the one that run {self.run!r} began with; "
                "put it back, or begin a new run under another name"
            )
        self.link.encryption = self.member.encryption(agreement)
        self.member.enter(agreement.proposal, limited=False)  # it may be of a version that had no table ledger
        self.account = Account(self.spent, agreement.proposal, self.member.note_spent)
        self._restore()
        if self.finished:
            self._export()  # it may have died between its last commit and this
            self.account.end(self.member.spent_by(self.ledger))
        self.notify("reopened", round=self.number, finished=self.finished)

    def _open_side(self) -> PartySide:
        """This party's side of the run; what fails in its computing is, with noise, for its own operator alone."""
        side = self.member.open_side(self.ledger)
        self.known = known_rows(side.cohort.schema)
        side.tell = lambda reason: self.notify("kept to itself", reason=reason)
        return side

    def _restore(self) -> None:
        """Everything as it was committed last."""
        saved = self.store.snapshot()
        self.ledger = Ledger(saved.ledger if saved else ())
        self.side, self.number = self._open_side(), SETTLED
        if saved is not None:
            self.side.restore(saved.tensors | self._uploaded(saved.facts["number"]))
            facts = saved.facts
            self.number, self.finished, self._notice = facts["number"], facts["finished"], facts["notice"]
            self.transcript, self._entered = facts.get("transcript", ""), facts.get("entered", 0)
            self._predicted = facts.get("predicted", [])

    def _uploaded(self, number: int) -> dict[str, Tensor]:
        """The upload of the last training round, from the outbox: nothing is written twice."""
        if self.member.sums:
            return {}  # what left is masked
        for _, kind, payload in self.store.sent(number):
            if kind == Purpose.TRAIN.value:
                uploaded = numbers_of(self._side.cohort.schema).read(*decode(payload))
                return {f"said.{name}": array[None] for name, array in uploaded.items()}
        return {}

    # -- a request -----------------------------------------------------------------------------

    def _take(
        self, incoming: Incoming, kind: str, number: int, header: Mapping[str, Any], arrays: dict[str, Tensor]
    ) -> None:
        """One part of a request: carry it out when all parts are there; repeat what was answered before."""
        if number <= self.number:
            if kind == "ALL" and incoming.at > self._spoke:  # or it was asked while the answer was being sent
                self._repeat(number)
            return self.link.done([incoming])
        parts = self._pool.setdefault(number, {})
        if kind in parts:
            return self.link.forget(incoming)
        parts[kind] = (incoming, header, arrays)
        if "ALL" in parts and ("OWN" in parts or not has_own(parts["ALL"][1], self.me)):
            self._work(number, parts)
        return None

    def _work(self, number: int, parts: Parts) -> None:
        received = [incoming for n in list(self._pool) if n <= number for incoming, *_ in self._pool.pop(n).values()]
        try:
            schema, (_, header, arrays) = self._side.cohort.schema, parts["ALL"]
            request = read_request(header, arrays, schema.parties, self.known)
            numbers = numbers_of(schema).reply(number)
            self._check_sequence(request)
            own = read_own(numbers.read(*parts["OWN"][1:])) if "OWN" in parts else {}
            asked = self._asked(parts["ALL"][0].data, own)
            self._carry_out(request, numbers.read(header, arrays), own, received, asked)
        except Unwritable:
            raise  # nothing was sent: the operator sees to the disk, the request comes again
        except ColonnadeError as error:
            self._restore()  # nothing of a refused request stays
            self._notices.refuse(number, error)
            self.link.done(received)

    def _asked(self, message: bytes, own: Mapping[str, Tensor]) -> str:
        """The digest of all that was asked so far; masks that hide the answer are of this question and no other."""
        if not self.member.masks_apart:
            return ""
        if own:  # the others, who must use the same masks, would not know of it
            raise WireError("a part of a request for one party alone, where only sums open")
        return hashlib.sha256(self.transcript.encode() + hashlib.sha256(message).digest()).hexdigest()

    def _check_sequence(self, request: Request) -> None:
        """Requests come one by one; who missed some, where the run went on without it, cannot learn from the last."""
        missed_well = self.finished or (self.member.goes_on and self.me not in request.learners)
        if request.number > self.number + 1 and not missed_well:
            raise RunError(
                f"party {self.me!r} has carried out round {self.number} and is asked for {request.number}: its store "
                "is an old copy; put the newest one back"
            )
        if self.account is not None:
            self.account.check(self.number, self._entered, request.number)

    def _carry_out(
        self,
        request: Request,
        arrays: dict[str, Tensor],
        own: dict[str, Tensor],
        received: Sequence[Incoming],
        asked: str,
    ) -> None:
        if (doubts := self.member.extend(request)) is not None:
            self._restore()
            if doubts:
                told = f"{doubts} warning{'s' * (doubts > 1)} about the new rows; by column: colonnade drift party.toml"
                self.notify("drift", run=self.run, note=f"{told} --run {self.run}")
        side = self._side
        side.asked = asked
        self.member.check_request(request)
        if request.consent:
            return self._consent(request, received)
        common = {k: v.to(side.cohort.device) for k, v in read_common(arrays).items()}
        reply = Received(common, {k: v.unsqueeze(0).to(side.cohort.device) for k, v in own.items()})
        before, self._notice = len(self.ledger), {}
        with self.turn if request.learners or request.trainers else nullcontext():
            passed = self._answer(side, request, reply)
        if request.stop is not None:
            side.use_best()
            self.finished = request.stop
        sent = [(part, s.releases[0]) for part, s in enumerate(passed) if s.releases]
        self.number, self._predicted = request.number, self.member.asked_to_predict(request)
        if not self.finished or request.stop is not None:  # afterwards not everybody is asked everything
            self.transcript = asked
        self._outdated = bool(self.finished) and request.stop is None  # its files lack this release, until `tidy`
        self._commit(sent, before, model=not self._outdated)
        if request.stop is not None:
            self._export()
        if request.stop is not None and self.account is not None:
            self.account.end(self.member.spent_by(self.ledger))
        self._send(sent, received)
        size = sum(len(released.payload) for _, released in sent)
        if self._predicted:
            return self.notify("predicted", round=request.number, rows=len(self._predicted), bytes=size)
        return self.notify("answered", round=request.number, bytes=size)

    def _consent(self, request: Request, received: Sequence[Incoming]) -> None:
        """It would be answered. Nothing is computed, stored or logged; asked again, the answer is the same."""
        self._notices.tell(DONE, request.number)
        self.link.done(received)

    def _answer(self, side: PartySide, request: Request, reply: Received) -> list[Passed]:
        try:
            return side.answer(request, reply)
        except Diverged as error:
            self._notice = {"kind": DIVERGED, "reason": str(error)}
            return []
        except ColonnadeError:
            raise
        except Exception as error:  # a reply that the method cannot use: arrays missing, other shapes
            raise WireError(f"request {request.number} cannot be carried out: {type(error).__name__}") from error

    @property
    def _side(self) -> PartySide:
        if self.side is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        return self.side

    def _commit(self, sent: list[tuple[int, Release]], before: int = 0, model: bool = True) -> None:
        facts = {"number": self.number, "finished": self.finished, "notice": self._notice}
        entered = 0 if self.account is None else self.account.last
        facts |= {"transcript": self.transcript, "entered": entered, "predicted": self._predicted}
        in_outbox = not self.member.sums and any(released.kind == Purpose.TRAIN.value for _, released in sent)
        tensors = self._side.tensors(uploaded=not in_outbox) if model else None  # which no prediction changes
        self.store.commit(facts, tensors, ledger=self.ledger.since(before), outbox=sent)

    def _export(self) -> None:
        folder, part = self.store.path.parent, self.member.part(self._side.models()[self.me])
        proposal = self.store.about()["agreement"]["proposal"]
        digest = "" if self.member.agreement is None else self.member.agreement.proposal.digest
        about = {"proposal": proposal, "stop": self.finished, **for_record(folder, digest, self._credentials)}
        export(folder, about, part, self.ledger, self.store.signed_head(), self.member.columns.reference)

    # -- sending ------------------------------------------------------------------------------

    def _send(self, sent: list[tuple[int, Release]], received: Sequence[Incoming] = ()) -> None:
        to_send = [Outgoing(COORDINATOR, released, part) for part, released in sent]
        if self.account is not None:
            predicted = self.member.names_of(self._predicted)
            self.account.leave(self.number, [released for _, released in sent], self.member.table, predicted)
        if not to_send:
            reason = {"reason": self._notice["reason"]} if self._notice else {}
            to_send = [
                Outgoing(COORDINATOR, Notice(self.run, self.number, self._notice.get("kind", DONE), self.me, reason))
            ]
        self.link.send(*to_send, answers=received)
        self._spoke = time.monotonic()

    def _repeat(self, number: int) -> None:
        """A question that was answered: the same bytes again; of older ones nothing is left but that they are done."""
        self.notify("repeating", round=number)
        if number < self.number:
            return self._notices.tell(DONE, number)
        try:
            if self.account is not None:
                self.account.check(self.number, self._entered, number)
            stored = self.store.sent(number)
            sent = [(p, repeat(self.ledger, self.me, kind, number, payload)) for p, kind, payload in stored]
            return self._send(sent)
        except Unwritable:
            raise
        except RunError as error:  # an old copy was put back
            return self._notices.refuse(number, error)
