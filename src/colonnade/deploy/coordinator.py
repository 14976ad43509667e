"""The process of the label holder: propose, let everybody join, train, evaluate the test rows, close.

Every round is committed before the next request leaves, so it may be killed at any moment and started again
with the same command: it sends the request it was at once more, and the parties answer with the bytes they
stored.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from colonnade import checkpoint
from colonnade.deploy.agreement import (
    CLOSE,
    CLOSED,
    FORMAT,
    JOIN,
    Agreement,
    propose,
    read_join,
    settle,
)
from colonnade.deploy.approval import PENDING
from colonnade.deploy.encryption import encryption_of_coordinator, own_keys, secrets_for
from colonnade.deploy.signing import check_own, head_signer, sign_file
from colonnade.deploy.undertaking import Undertaking, in_full
from colonnade.engines.link import Link
from colonnade.engines.message import Incoming, Notify, Outgoing
from colonnade.engines.remote import ASK_AGAIN, DONE, REFUSED, Absence, Away, Remote
from colonnade.errors import ColonnadeError, ConfigError, IdentityError, Refused, RunError, WireError
from colonnade.fit import Trainer, find_device
from colonnade.identity.credentials import Credentials
from colonnade.methods._guest import check_guest, check_shown
from colonnade.methods.base import (
    check_gradients,
    check_labels,
)
from colonnade.opening import Terms, check_facts, open_coordinator
from colonnade.privacy.chain import HEAD, LEDGER
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.registry import kind_of
from colonnade.progress import Watcher
from colonnade.record import RECORD, STORE
from colonnade.run import Run
from colonnade.saved import read_lines
from colonnade.store import Store
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, notice_of

T = TypeVar("T")
Invite = Callable[[Sequence[str]], None]  # tells some parties, who may serve many runs, that there is this one


class CoordinatorProcess:
    """The label holder in one run."""

    def __init__(
        self,
        folder: Path,
        link: Link,
        credentials: Credentials,
        undertaking: Undertaking,
        notify: Notify,
        invite: Invite | None = None,
    ) -> None:
        if undertaking.method.pools:
            raise ConfigError(
                f"method {undertaking.method.name!r} puts all columns in one place; it is a reference for simulation"
            )
        u = undertaking
        weighted = u.weights is not None or u.training.class_weights is not None
        check_labels(u.method, u.task, u.privacy.labels, weighted)
        # Refused after everybody has agreed, the run would stay in the parties' budgets, and its name be used up.
        check_facts(u.task, u.labels, u.split, u.training, u.privacy, u.may_evaluate)
        check_guest(u.method, u.parties)
        check_shown(u.method, u.privacy.protects, u.privacy.secure_sum.use)
        for party in undertaking.parties:
            check_gradients(undertaking.method, party, undertaking.model.of(party).gradients)
        self.folder, self.link, self.credentials, self.notify = folder, link, credentials, notify
        self._pending: set[str] = set()  # parties where a person has to approve the proposal
        self._invite: Invite = invite or (lambda parties: None)
        training = undertaking.training.model_copy(update={"checkpoint_every": 1})
        self.undertaking = replace(undertaking, training=training, privacy=in_full(undertaking))
        self.sign = head_signer(credentials, link.run)
        self.store, self.keys = Store(folder / STORE, self.sign), own_keys(folder)
        # With the run's seed, which every party knows, the label noise could be taken away again.
        self.label_key = int(self.store.about()["label_key"], 16) if self.store.begun else secrets.randbits(128)

    def serve(self, watch: Watcher | None = None) -> Run:
        """Everything, from the proposal to the closed run."""
        u, link = self.undertaking, self.link
        finished = (self.folder / RECORD).exists()
        check_own(self.store.lines(), self.store.signed_head(), self.credentials, self.store.path)
        # What was sent to an earlier life of this process is sent again when asked; a refusal may not hold any more.
        link.lay(u.parties, anew=not finished)
        link.listen()
        agreement = self._agreement()
        if finished:  # only the goodbye may be missing
            run = Run.load(self.folder)
            if not (self.folder / HEAD).exists():  # it died before it could sign
                self._sign(run)
            self._close(patience=5.0)
            return run
        trainer = self._trainer(agreement)
        try:
            run = trainer.train(self.store, watch)
        except Away as error:
            run = self._stop_without(agreement, trainer, error, watch)
        self._sign(run)
        self._close(min(u.absence.patience, 30.0))
        return run

    def _sign(self, run: Run) -> None:
        """Vouch for the ledger of the finished run, which goes on from that of the store."""
        path = self.folder / LEDGER
        with closing(Store(self.store.path)) as store:  # that of the training is closed by now
            check_own(read_lines(path), store.signed_head(), self.credentials, path)
        sign_file(self.folder, len(run.ledger), self.sign)

    # -- agreeing -----------------------------------------------------------------------------

    def _agreement(self) -> Agreement:
        """What was agreed on, or is agreed on now."""
        u = self.undertaking
        if self.store.begun:
            self._invite(u.parties)  # who has lost its record of the run is to say so
            agreement = Agreement.from_json(self.store.about()["agreement"])
            body, former = u.body(self.link.run), agreement.proposal.format
            if former < FORMAT:
                body.pop("own", None)  # an earlier version did not say
            offered = propose(body, u.split.train, self.keys.public, self.credentials, former)
            if offered.digest != agreement.proposal.digest:
                raise RunError(
                    f"{self.folder} holds run {self.link.run!r} with other settings, rows or labels; continue it with "
                    "the configuration it began with, or give the new run another name and folder"
                )
            self._check_labels(agreement)
            self._encryption(agreement)
            return agreement
        proposal = propose(u.body(self.link.run), u.split.train, self.keys.public, self.credentials)
        self.notify("proposing", run=self.link.run, digest=proposal.digest[:12], parties=list(u.parties))
        joined = self.roll_call(proposal.notice(), JOIN, lambda n: read_join(n, proposal, self.credentials))
        ciphers = secrets_for(self.keys, {p: j.key for p, j in joined.items()}, proposal.digest)
        agreement = settle(proposal, joined, ciphers, self.credentials)
        self.roll_call(agreement.notice(), DONE, lambda n: n)
        trainer = self._trainer(agreement)
        kept = {"agreement": agreement.to_json(), "label_key": f"{self.label_key:x}", "withdrawn": list(u.withdrawn)}
        self.store.describe(checkpoint.describe(trainer) | kept)
        self.notify("agreed", run=self.link.run, parties=list(u.parties))
        self._encryption(agreement)
        return agreement

    def _check_labels(self, agreement: Agreement) -> None:
        """Refuse labels, row weights, split or classes that are not those the run began with; nobody else sees them."""
        began, now = self.store.about(), self.undertaking.federation(agreement)
        same_classes = list(began["about"].get("class_names", [])) == list(now.task.names)
        if began["data"] != checkpoint.fingerprint(now) or not same_classes:
            raise RunError(
                f"the labels, row weights or split of run {self.link.run!r} are not those that it began with; put the "
                "label holder's table back, or give the new run another name and folder"
            )

    def _encryption(self, agreement: Agreement) -> None:
        """From now on nobody but its reader opens a message."""
        publics = {p: joined.key for p, joined in agreement.joined.items()}
        self.link.encryption = encryption_of_coordinator(
            self.credentials, self.keys, publics, agreement.proposal.digest, agreement.proposal.format > 3
        )

    def roll_call(self, notice: Notice, answer: str, read: Callable[[Notice], T]) -> dict[str, T]:
        """Say something to everybody and wait for everybody's answer, as long as it takes."""
        answers: dict[str, T] = {}
        self._pending.clear()
        asked = 0.0
        while missing := [p for p in self.undertaking.parties if p not in answers]:
            if time.monotonic() - asked > ASK_AGAIN or self.link.came_back.is_set():
                self.link.came_back.clear()
                if asked:  # who is not there yet finds one invitation, not one for each time it was missed
                    self.link.lay(self.undertaking.parties, anew=True)
                to_send = [Outgoing(p, notice) for p in missing] if asked else [Outgoing("*", notice)]
                self.link.send(*to_send, again=True)
                self._invite(missing)
                asked = time.monotonic()
            incoming = self.link.next(1.0)
            if incoming is None:
                self.notify("waiting", round=notice.number, parties=missing, note=_persons(self._pending & {*missing}))
                continue
            try:
                answered = self._read(incoming, notice.number, answer)
                if answered is not None:
                    answers[answered.sender] = read(answered)
            except (WireError, IdentityError) as error:
                self.notify("refused", party=incoming.sender, reason=str(error))
        return answers

    def _read(self, incoming: Incoming, number: int, answer: str) -> Notice | None:
        """An answer to a roll call; None if it is an answer to something else."""
        header, arrays = decode(incoming.data)
        sender, run = str(header.get("sender"))[:64], str(header.get("run"))[:64]
        if sender != incoming.sender or sender not in self.undertaking.parties or run != self.link.run:
            raise WireError(f"a message of {incoming.sender[:64]!r} in the name of {sender!r}, run {run!r}")
        if header.get("number") != number:
            return None
        answered = notice_of(header, {name: array.numpy().tobytes() for name, array in arrays.items()})
        if answered.kind == REFUSED:
            reason = str(answered.facts.get("reason", "it gave no reason"))[:500]
            raise Refused(f"party {answered.sender!r} refuses: {reason}")
        if answered.kind == PENDING:
            self._pending.add(answered.sender)
        return answered if answered.kind == answer else None

    # -- training -----------------------------------------------------------------------------

    def _trainer(self, agreement: Agreement, absence: Absence | None = None) -> Trainer:
        u = self.undertaking
        schema = agreement.schema(find_device(u.training.device))
        if u.held is not None:
            schema = replace(schema, held=u.held.to(schema.device))
        federation, ledger, run = u.federation(agreement), Ledger(), self.link.run
        short = agreement.proposal.short_rows
        over = None if u.taken is None else u.taken.over
        terms = Terms(u.privacy, u.absence.then == "continue", self.label_key, u.may_evaluate, short, over)
        coordinator = open_coordinator(federation, schema, u.method, u.training, ledger, run, terms)
        coordinator.noised = not kind_of(u.named_mechanism).bare
        engine = Remote(self.link, schema, u.method, run, absence or u.absence, self.notify)
        if adders := agreement.adders({}):
            coordinator.opener = adders.opener(coordinator.schedule.most_releases(coordinator.training_plan.rounds))
            engine.roster = adders.roster.digest
        trainer = Trainer(
            federation, coordinator, engine, u.training, u.model, None, ledger, run, u.privacy, config=u.config,
            may_evaluate=u.may_evaluate,
        )  # fmt: skip
        if u.taken is not None:
            trainer.regrouped = u.taken.noted(u.parties, coordinator.labels.event.kind.name, len(u.split.train))
        return trainer

    def _stop_without(self, agreement: Agreement, trainer: Trainer, error: Away, watch: Watcher | None) -> Run:
        """End the run because somebody stayed away; whoever is there is told, the best round is kept."""
        c = trainer.coordinator
        c.end(c.number + 1, f"stopped: {error}")
        checkpoint.commit(trainer, self.store)
        lenient = self.undertaking.absence.model_copy(update={"then": "continue"})
        return self._trainer(agreement, lenient).train(self.store, watch)  # from the store, as after a restart

    def _close(self, patience: float) -> None:
        """Tell everybody that training is over; what has not reached its reader by then stays on the server."""
        notice = Notice(self.link.run, CLOSED, CLOSE, COORDINATOR)
        told, deadline = set[str](), time.monotonic() + patience
        self.link.send(Outgoing("*", notice), again=True)
        while set(self.undertaking.parties) - told and time.monotonic() < deadline:
            incoming = self.link.next(0.5)
            if incoming is None:
                continue
            try:
                answered = self._read(incoming, CLOSED, DONE)
                told |= {answered.sender} if answered else set()
            except ColonnadeError as error:
                self.notify("refused", party=incoming.sender, reason=str(error))
        left = sorted(set(self.undertaking.parties) - told)
        if not left:
            self.link.purge()  # nothing of the run stays on the server's disk
        self.notify("closed", run=self.link.run, **({"not_told": left} if left else {}))


def _persons(parties: set[str]) -> str:
    return f"a person at {', '.join(sorted(parties))} has to approve the run" if parties else ""
