"""A candidate's side: check who asks and what for, learn from the noisy labels, release one score per row.

It answers one question and ends. What it releases stands in its own ledger before it leaves; the same question gets the
same bytes again.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.align import messages as m
from colonnade.align.line import Line, Notify, silent
from colonnade.deploy.policy import Policy, check_question
from colonnade.deploy.withdrawal.limits import check_rows
from colonnade.deploy.worth.folder import Kept
from colonnade.deploy.worth.messages import Join, Proposal
from colonnade.errors import ColonnadeError, LinkError, Refused, WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.joining.answer import answer, read_question
from colonnade.wire.notice import Notice

TICK = 0.1  # seconds


@dataclass(frozen=True)
class Candidate:
    """What a candidate brings."""

    columns: Callable[[Tensor, int], Tensor] = field(repr=False)  # its columns by row, scaled by some rows, of so many
    rows: int  # that all sides of the alignment hold
    alignment: str  # its digest
    policy: Policy
    withdrawn: Callable[[], Tensor] | None = None  # rows of people who withdrew; None: nobody can


@dataclass(frozen=True)
class Told:
    """What a candidate learned and gave."""

    proposal: Proposal
    down: int
    up: int


class Answering:
    """The role, moved by what it receives."""

    def __init__(self, sender: m.Sender, candidate: Candidate, kept: Kept, notify: Notify = silent) -> None:
        self._sender, self._candidate, self._kept, self._notify = sender, candidate, kept, notify
        self._proposal: Proposal | None = None
        self._cipher: Cipher | None = None
        self._sizes: tuple[int, int] | None = None
        self._asked: str | None = None  # the digest of the only question that is answered
        self.done: Told | None = None

    def begin(self) -> None:
        """Say that this process is there."""
        self._sender.send(COORDINATOR, "HELLO", m.Hello(session=secrets.token_hex(16)))
        self._notify("waiting")

    def receive(self, notice: Notice) -> None:
        """One notice; only the label holder is listened to."""
        if notice.sender != COORDINATOR:
            self._notify("refused", sender=notice.sender, kind=notice.kind, reason="not of this question")
        elif notice.kind == "PROPOSE":
            self._propose(notice)
        elif self._proposal is None or notice.facts.get("attempt") != self._proposal.attempt:
            self._notify("ignored", sender=notice.sender, kind=notice.kind, reason="of another attempt")
        elif notice.kind == "QUESTION":
            self._question(notice, self._proposal)
        elif notice.kind == "STOP":
            self._stop(notice, self._proposal)
        else:
            raise WireError(f"{m.called(COORDINATOR)} sent a {notice.kind[:40]!r}, which nobody says here")

    def _propose(self, notice: Notice) -> None:
        self._sender.verified(notice)
        proposal, me = m.read(Proposal, notice), self._sender.line.me
        if self._proposal is not None and proposal.attempt == self._proposal.attempt:
            return  # delivered twice, or said again because somebody else came late
        self._proposal = proposal
        self._notify("proposed", rows=proposal.told, judged=proposal.judged, label_epsilon=proposal.epsilon)
        if proposal.name != self._sender.name or me not in proposal.parties:
            raise Refused(f"{m.called(COORDINATOR)} asks a question that {me!r} has no part in")
        if proposal.alignment != self._candidate.alignment:
            raise Refused(f"{m.called(COORDINATOR)} asks about another alignment than {me!r} has; align again")
        proposal.labels()
        check_question(self._candidate.policy, self._candidate.rows)
        pair = KeyPair.new()
        self._cipher = Cipher.between(pair, bytes.fromhex(proposal.key), f"{proposal.attempt} {me}")
        join = Join(attempt=proposal.attempt, proposal=proposal.digest, key=pair.public.hex())
        self._sender.sign(COORDINATOR, "JOIN", join)

    def _question(self, notice: Notice, proposal: Proposal) -> None:
        if self._cipher is None:
            raise WireError(f"{m.called(COORDINATOR)} goes on although nothing was agreed")
        m.read(m.Bare, notice)
        payload, me, task = self._sender.decrypted(notice, self._cipher), self._sender.line.me, proposal.labels()
        sample, _ = read_question(payload, proposal.name, me, self._candidate.rows, task)
        if (len(sample.told), len(sample.judged)) != (proposal.told, proposal.judged):
            raise WireError(f"{m.called(COORDINATOR)} asks about other numbers of rows than it proposed")
        asked = hashlib.sha256(payload).hexdigest()
        if self._asked not in (None, asked):
            raise WireError(f"{m.called(COORDINATOR)} asks a second question; this process answers one, and ends")
        if self._candidate.withdrawn is not None:
            rows, gone = torch.cat([sample.told, sample.judged]), self._candidate.withdrawn()
            check_rows(rows, gone, "the question is about")
        self._asked = asked
        columns = self._candidate.columns(sample.told, self._candidate.rows)
        before = len(self._kept.ledger)
        released = answer(proposal.name, me, columns, payload, task, self._kept.ledger)
        self._kept.write()  # before it leaves
        self._notify("released", rows=len(sample.judged), releases=len(self._kept.ledger) - before)
        bare = m.Bare(attempt=proposal.attempt)
        self._sender.encrypt(COORDINATOR, "ANSWER", bare, released.payload, self._cipher)
        self._sizes = (len(payload), len(released.payload))

    def _stop(self, notice: Notice, proposal: Proposal) -> None:
        self._sender.verified(notice)
        why = m.read(m.Stop, notice).why
        if why != "done" or self._sizes is None:
            raise LinkError("the label holder ended the question before this side had answered; ask there")
        self.done = Told(proposal, *self._sizes)

    def leave(self, error: ColonnadeError) -> None:
        """Tell the label holder that this side ends; a policy's reason is told, anything else stays here."""
        if self._proposal is not None and self.done is None:
            reason = str(error) if isinstance(error, Refused) else f"its side ended with a {type(error).__name__}"
            refusal = m.Refusal(attempt=self._proposal.attempt, reason=m.readable(reason))
            self._sender.send(COORDINATOR, "REFUSE", refusal)


def answer_question(
    line: Line,
    credentials: Credentials,
    name: str,
    candidate: Candidate,
    kept: Kept,
    patience: float,
    notify: Notify = silent,
) -> Told:
    """Wait for the label holder's question and answer it, once.

    Raises:
        Refused: the policy does not allow it, or it is about another alignment.
        WireError, IdentityError: the label holder sent something that is not what it should be.
        LinkError: the label holder does not ask within `patience` seconds, or gave up.
    """
    side = Answering(m.Sender(line, credentials, name), candidate, kept, notify)
    side.begin()
    try:
        moved = time.monotonic()
        while side.done is None:
            notice = line.receive(TICK)
            if notice is not None:
                side.receive(notice)
                moved = time.monotonic()
            elif time.monotonic() - moved > patience:
                raise LinkError(f"the label holder said nothing for {patience:g} seconds; see that it asks")
    except ColonnadeError as error:
        with contextlib.suppress(ColonnadeError):  # the line may be what failed
            side.leave(error)
        raise
    return side.done
