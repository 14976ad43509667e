"""The label holder asks everybody who withdrew, and tells everybody; a party answers for as long as it runs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from colonnade.align import messages as m
from colonnade.align.line import EVERYONE, Line
from colonnade.deploy.withdrawal import messages as w
from colonnade.deploy.withdrawal.side import Aligned, Side
from colonnade.engines.message import Notify
from colonnade.errors import IdentityError, WireError
from colonnade.identity.cipher import KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice

TICK = 0.2  # seconds


@dataclass
class Asking:
    """The label holder's side of one attempt: it moves with every answer."""

    side: Side
    sender: m.Sender
    parties: tuple[str, ...]
    alignment: Aligned
    notify: Notify
    attempt: str = field(default_factory=lambda: secrets.token_hex(16))
    pair: KeyPair = field(default_factory=KeyPair.new, repr=False)
    open: dict[str, w.Private] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)  # party -> "" or why it cannot

    def begin(self) -> None:
        """Ask all parties."""
        key, a = self.pair.public.hex(), self.alignment.heading
        question = w.Question(attempt=self.attempt, alignment=a.digest, extends=a.extends, key=key)
        self.sender.sign(EVERYONE, w.ASK, question)

    def receive(self, notice: Notice) -> None:
        """One answer; those of other attempts are from before."""
        if notice.sender not in self.parties or notice.facts.get("attempt") != self.attempt:
            return
        if notice.kind == w.TELL:
            self._told(notice)
        elif notice.kind == w.DONE and notice.sender in self.open:
            self._confirmed(notice)
        elif notice.kind == w.CANNOT:
            self.sender.verified(notice)
            self.done[notice.sender] = m.readable(m.read(w.Reason, notice).reason)
            self.side.confirmed(notice.sender, "", 0, self.done[notice.sender])
        else:
            raise WireError(f"{m.called(notice.sender)} sent a {notice.kind[:40]!r}, which nobody says here")

    def _told(self, notice: Notice) -> None:
        who, answer = notice.sender, m.read(w.Answer, notice)
        private = w.Private.between(self.sender, self.pair, answer.key, who, self.attempt)
        rows = w.unpacked(private.read(notice), notice)
        if len(rows) and rows[-1] >= self.alignment.heading.agreed.rows:
            raise WireError(f"{m.called(who)} sent a TELL about rows that are not in the alignment")
        new = self.side.adopt(rows, who, self.alignment, self.notify)
        self.open[who] = private
        for name in self.open if new else (who,):  # whoever was told before does not know of these yet
            self._tell(name)

    def _tell(self, party: str) -> None:
        self.done.pop(party, None)
        self.open[party].send(party, w.ROWS, w.packed(self.side.rows(self.alignment)))

    def _confirmed(self, notice: Notice) -> None:
        who, rows = notice.sender, self.side.rows(self.alignment)
        digest = w.rows_digest(self.alignment.heading.digest, rows)
        if self.open[who].read(notice) == digest.encode():  # else it has been told more meanwhile, and answers again
            self.done[who] = ""
            self.side.confirmed(who, digest, len(rows))


def ask_all(
    side: Side, line: Line, credentials: Credentials, parties: tuple[str, ...], notify: Notify, patience: float
) -> Mapping[str, str]:
    """Ask all parties, take over what they say, and tell them: by party "", or why it has not confirmed."""
    alignment = Aligned.at(side.alignment)
    asking = Asking(side, m.Sender(line, credentials, alignment.heading.name), parties, alignment, notify)
    asking.begin()
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and set(asking.done) != {*parties}:
        _take(asking, line, notify)
    away = "it did not answer; it is told when it runs and the label holder does"
    return {party: asking.done.get(party, away) for party in parties}


@dataclass
class Answering:
    """A party's side: whoever asks is answered with all that is known here."""

    side: Side
    sender: m.Sender
    notify: Notify
    _now: tuple[w.Private, Aligned, w.Question] | None = None

    def receive(self, notice: Notice) -> None:
        """One notice of the label holder."""
        if notice.sender != COORDINATOR:
            raise WireError(f"a {notice.kind[:40]!r} of somebody who is not the label holder")
        if notice.kind == w.ASK:
            self._asked(notice)
        elif notice.kind == w.ROWS and self._now is not None and notice.facts.get("attempt") == self._now[2].attempt:
            self._rows(notice, *self._now)

    def _asked(self, notice: Notice) -> None:
        self.sender.verified(notice)
        question, alignment = m.read(w.Question, notice), Aligned.at(self.side.alignment)
        mine = alignment.heading
        theirs, ours = (question.alignment, *question.extends), (mine.digest, *mine.extends)
        if question.alignment not in ours and mine.digest not in theirs:
            told = f"it has the alignment {mine.digest[:12]}, and is asked about {question.alignment[:12]}"
            reason = w.Reason(attempt=question.attempt, reason=f"{told}: row numbers mean other people; align again")
            return self.sender.sign(COORDINATOR, w.CANNOT, reason)
        pair, me = KeyPair.new(), self.sender.line.me
        private = w.Private.between(self.sender, pair, question.key, me, question.attempt)
        self._now = (private, alignment, question)
        rows = self.side.rows(alignment)
        if question.alignment in mine.extends:  # the label holder has not extended it: it knows no others
            rows = rows[rows < alignment.rows_under(question.alignment)]
        answer = w.Answer(attempt=question.attempt, key=pair.public.hex())
        return private.send(COORDINATOR, w.TELL, w.packed(rows), answer)

    def _rows(self, notice: Notice, private: w.Private, alignment: Aligned, question: w.Question) -> None:
        rows = w.unpacked(private.read(notice), notice)
        self.side.adopt(rows, COORDINATOR, alignment, self.notify)
        if held := self.side.waits(rows, alignment):
            told = f"{held:,} rows wait for a person's approval at {self.sender.line.me}, or were refused there"
            return self.sender.sign(COORDINATOR, w.CANNOT, w.Reason(attempt=question.attempt, reason=told))
        digest = w.rows_digest(question.alignment, rows)
        missing = np.setdiff1d(self.side.rows(alignment), rows)
        if not len(missing):  # the label holder leaves out all that is left out here
            self.side.confirmed(COORDINATOR, digest, len(rows))
        return private.send(COORDINATOR, w.DONE, digest.encode())


def answer_while(side: Side, sender: m.Sender, notify: Notify, go_on: Callable[[], bool]) -> None:
    """Answer the label holder for as long as that is so."""
    answering = Answering(side, sender, notify)
    while go_on():
        _take(answering, sender.line, notify)


def _take(role: Asking | Answering, line: Line, notify: Notify) -> None:
    notice = line.receive(TICK)
    if notice is None:
        return
    try:
        role.receive(notice)
    except (WireError, IdentityError) as error:
        notify("refused", party=notice.sender, reason=str(error))
