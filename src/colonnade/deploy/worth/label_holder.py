"""The label holder's side: propose, send the same question to whoever agrees, read what comes back.

A candidate that refuses, or sends what is no answer, is named with the reason and does not keep the others from being
judged. What it sent counts as not having come.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from torch import Tensor

from colonnade.align import messages as m
from colonnade.align.line import EVERYONE, Line, Notify, silent
from colonnade.deploy.worth.messages import Join, Proposal
from colonnade.errors import ColonnadeError, IdentityError, LinkError, WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.joining.answer import read_answer
from colonnade.joining.question import Question
from colonnade.wire.notice import Notice

TICK = 0.1  # seconds


@dataclass(frozen=True)
class Answered:
    """What came back: scores and the bytes they took, and why others have none."""

    levels: dict[str, Tensor] = field(default_factory=dict, repr=False)
    sizes: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Asking:
    """One question to several candidates."""

    def __init__(
        self,
        sender: m.Sender,
        candidates: tuple[str, ...],
        question: Question,
        alignment: str,
        notify: Notify = silent,
    ) -> None:
        self._sender, self._candidates, self._question, self._notify = sender, candidates, question, notify
        self._pair = KeyPair.new()
        sample, told = question.sample, question.task
        self._proposal = Proposal(
            name=sender.name,
            attempt=secrets.token_hex(16),
            alignment=alignment,
            parties=candidates,
            task=told.name,
            outputs=told.outputs,
            told=len(sample.told),
            judged=len(sample.judged),
            epsilon=question.epsilon,
            key=self._pair.public.hex(),
        )
        self._ciphers: dict[str, Cipher] = {}
        self.answered = Answered()

    @property
    def waiting(self) -> list[str]:
        """Candidates of whom nothing is settled yet."""
        return [name for name in self._candidates if name not in {**self.answered.levels, **self.answered.failed}]

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever somebody joins for the first time, answers or is given up."""
        return len(self.waiting), len(self._ciphers)

    def begin(self) -> None:
        """The proposal, to all."""
        self._sender.sign(EVERYONE, "PROPOSE", self._proposal)
        self._notify("proposed", parties=list(self._candidates), rows=self._proposal.told)

    def receive(self, notice: Notice) -> None:
        """One notice; a stranger's is ignored, and what a candidate does wrong is held against it alone."""
        name = notice.sender
        if name not in self.waiting:
            self._notify("ignored", sender=name, kind=notice.kind, reason="not of this question")
            return
        try:
            self._take(notice)
        except (WireError, IdentityError) as error:
            self._give_up(name, str(error))

    def _take(self, notice: Notice) -> None:
        name, current = notice.sender, notice.facts.get("attempt") == self._proposal.attempt
        if notice.kind == "HELLO":
            m.read(m.Hello, notice)
            self.begin()  # it may have been away when this was said
        elif not current:
            self._notify("ignored", sender=name, kind=notice.kind, reason="of another attempt")
        elif notice.kind == "REFUSE":
            self._give_up(name, m.readable(m.read(m.Refusal, notice).reason))
        elif notice.kind == "JOIN":
            self._join(notice)
        elif notice.kind == "ANSWER" and name in self._ciphers:
            self._answer(notice)
        else:
            raise WireError(f"{m.called(name)} sent a {notice.kind[:40]!r}, which is not its turn to say")

    def _join(self, notice: Notice) -> None:
        self._sender.verified(notice)
        join, name, attempt = m.read(Join, notice), notice.sender, self._proposal.attempt
        if join.proposal != self._proposal.digest:
            raise WireError(f"{m.called(name)} agreed to another question than the one that was asked")
        self._ciphers[name] = Cipher.between(self._pair, bytes.fromhex(join.key), f"{attempt} {name}")
        payload = self._question.release.payload
        self._sender.encrypt(name, "QUESTION", m.Bare(attempt=attempt), payload, self._ciphers[name])
        self._notify("asked", party=name, rows=self._proposal.judged)

    def _answer(self, notice: Notice) -> None:
        name = notice.sender
        m.read(m.Bare, notice)
        payload = self._sender.decrypted(notice, self._ciphers[name])
        rows, outputs = self._proposal.judged, self._proposal.outputs
        self.answered.levels[name] = read_answer(payload, self._sender.name, name, rows, outputs)
        self.answered.sizes[name] = len(payload)
        self._notify("answered", party=name)

    def _give_up(self, name: str, reason: str) -> None:
        self.answered.failed[name] = reason
        self._notify("refused", party=name, reason=reason)

    def late(self, patience: float) -> None:
        """Nobody who is still waited for has gone on for so long."""
        for name in self.waiting:
            self._give_up(name, f"gave no answer for {patience:g} seconds; start `colonnade worth party.toml` there")

    def stop(self, why: m.Why) -> None:
        """Tell all that it is over."""
        self._sender.sign(EVERYONE, "STOP", m.Stop(attempt=self._proposal.attempt, why=why))


def ask_candidates(  # the entry point: five things it needs, how long it waits and one who watches
    line: Line,
    credentials: Credentials,
    name: str,
    candidates: tuple[str, ...],
    question: Question,
    alignment: str,
    patience: float,
    notify: Notify = silent,
) -> Answered:
    """Ask, and wait until every candidate has answered, refused, or said nothing for `patience` seconds.

    Raises:
        LinkError: no candidate gave an answer; the reason of each is in the sentence.
    """
    asking = Asking(m.Sender(line, credentials, name), candidates, question, alignment, notify)
    asking.begin()
    try:
        moved = time.monotonic()
        while asking.waiting:
            notice, before = line.receive(TICK), asking.progress
            if notice is not None:
                asking.receive(notice)
            if asking.progress != before:
                moved = time.monotonic()
            elif time.monotonic() - moved > patience:  # also of one who only says hello, again and again
                asking.late(patience)
    except ColonnadeError:
        asking.stop("fault")
        raise
    asking.stop("done")
    found = asking.answered
    if not found.levels:
        reasons = "; ".join(f"{who}: {reason}" for who, reason in found.failed.items())
        raise LinkError(f"no candidate answered: {reasons}")
    return found
