"""A party's side: agree, blind its ids, blind the label holder's again, write the rows it is told.

It learns how many ids the label holder has, and which of its own ids are among the agreed rows.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from colonnade.align import messages as m
from colonnade.align.converse import converse
from colonnade.align.files import Alignment, prepare, read_alignment, write_alignment
from colonnade.align.ids import check_ids
from colonnade.align.line import Line, Notify, silent
from colonnade.align.match import HINT, Agreed, MatchReport, PartyMatch
from colonnade.align.more import extended, new_ids
from colonnade.align.parts import ROWS_PART, Parts, cut, parts_of, random_order
from colonnade.align.private import blind, blind_again, new_key
from colonnade.align.settings import MOST_IDS, JoinSettings
from colonnade.align.workers import Workers
from colonnade.errors import ColonnadeError, LinkError, Refused, RowsDisagree, WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice

Agree = Callable[[m.Proposal], None]  # raises `Refused` with the reason


def agree_to_all(proposal: m.Proposal) -> None:
    """An operator without further rules."""


def align_as_party(  # noqa: PLR0913, PLR0917 - the entry point: what it needs, one who watches and one who decides
    line: Line,
    credentials: Credentials,
    settings: JoinSettings,
    ids: Sequence[str],
    folder: Path,
    workers: int = 0,
    notify: Notify = silent,
    agree: Agree = agree_to_all,
    withdrawn: frozenset[str] = frozenset(),
) -> Alignment:
    """Wait for the label holder's proposal, take part, and write this side's files.

    With `settings.more` the alignment in the folder is extended. Ids that are `withdrawn` get no row.

    Raises:
        RowsDisagree: nothing is shared, or the table has lost rows of the alignment that is extended.
        Refused: `agree` or another party does not agree.
        WireError, IdentityError: the label holder sent something that is not what it should be.
        LinkError: the label holder does not answer, or gave up.
    """
    ids = check_ids([id for id in ids if id not in withdrawn], MOST_IDS)
    former = read_alignment(folder) if settings.more else None
    if former is not None:
        new_ids(ids, former, withdrawn)  # what is wrong with them is said now
    prepare(folder)
    with Workers(workers) as pool:
        side = Party(m.Sender(line, credentials, settings.name), settings, ids, folder, pool)
        side.agree, side.notify, side.present, side.withdrawn = agree, notify, former, withdrawn
        side.begin()
        try:
            converse(side, line, pool, settings.patience)
        except ColonnadeError as error:
            with contextlib.suppress(ColonnadeError):  # the line may be what failed
                side.leave(error)
            raise
    return side.outcome()


@dataclass
class _Attempt:
    """Everything that begins anew with a proposal."""

    proposal: m.Proposal
    cipher: Cipher
    key: bytes
    order: np.ndarray  # place in our setup -> place in our list of ids
    request: Parts
    sent: int = 0
    summary: m.Summary | None = None
    rows: dict[int, bytes] = field(default_factory=dict)  # parts of (place in our setup, row number)


class Party:
    """The role; `converse` moves it."""

    def __init__(
        self, sender: m.Sender, settings: JoinSettings, ids: Sequence[str], folder: Path, workers: Workers
    ) -> None:
        self._sender, self._settings, self._ids, self._all = sender, settings, ids, ids
        self._folder, self._workers = folder, workers
        self.notify: Notify = silent
        self.agree: Agree = agree_to_all
        self._seen: set[str] = set()  # attempts that were ever proposed
        self._attempt: str | None = None
        self._now: _Attempt | None = None  # None until this side has agreed
        self.present: Alignment | None = None  # what this side has, if that is to be extended
        self.withdrawn: frozenset[str] = frozenset()  # ids of people who withdrew
        self._former: Alignment | None = None  # what is extended: that, or one that it extends itself
        self._alignment: Alignment | None = None  # once it is written
        self._stopped = False

    # -- what converse asks ---------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """All sides have written their files."""
        return self._stopped

    def outcome(self) -> Alignment:
        """What was written."""
        if self._alignment is None:
            raise RuntimeError("asked for rows before they were written")
        return self._alignment

    def awaited(self) -> str:
        """Only the label holder ever sends to a party."""
        return m.called(COORDINATOR)

    def made(self, tag: tuple[str, str, int], points: bytes) -> None:
        """A part of our own ids, or of the label holder's with our key on top, is sent."""
        kind, _, part = tag
        now = self._here()
        self._sender.encrypt(COORDINATOR, kind, m.Part(attempt=now.proposal.attempt, part=part), points, now.cipher)
        now.sent += 1
        self.notify("progress", done=now.sent, total=parts_of(len(self._ids)) + now.request.total)

    def receive(self, notice: Notice) -> None:
        """One notice; only the label holder is listened to."""
        if notice.sender != COORDINATOR or notice.run != self._settings.name:
            self.notify("refused", sender=notice.sender, kind=notice.kind, reason="not of this alignment")
        elif notice.kind == "PROPOSE":
            self._propose(notice)
        elif self._attempt is None or notice.facts.get("attempt") != self._attempt:
            self.notify("ignored", sender=notice.sender, kind=notice.kind, reason="of another attempt")
        elif notice.kind in self._handlers:
            self._handlers[notice.kind](self, notice)
        else:
            raise WireError(f"{m.called(notice.sender)} sent a {notice.kind!r}, which nobody says here")

    # -- the steps, in order --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Say that this process is there; if it was there before, the label holder starts over."""
        self._sender.send(COORDINATOR, "HELLO", m.Hello(session=secrets.token_hex(16)))
        self.notify("waiting")

    def _propose(self, notice: Notice) -> None:
        self._sender.verified(notice)
        proposal = m.read(m.Proposal, notice)
        if proposal.attempt in self._seen:
            return  # delivered twice, or said again because somebody else came late
        self._seen.add(proposal.attempt)
        self._workers.forget()
        self._attempt, self._now, self._alignment = proposal.attempt, None, None
        self.notify("proposed", ids=proposal.ids, parties=proposal.parties, keep=proposal.keep)
        self._check(proposal)
        self._extend(proposal)
        self.agree(proposal)
        self._join(proposal)

    def _check(self, proposal: m.Proposal) -> None:
        if proposal.name != self._settings.name or self._sender.line.me not in proposal.parties:
            raise Refused(f"{m.called(COORDINATOR)} proposes an alignment that {self._sender.line.me!r} has no part in")
        if proposal.ids > self._settings.most_ids:
            raise Refused(
                f"{m.called(COORDINATOR)} brings {proposal.ids:,} ids, and each is a question about ours; most_ids "
                f"allows {self._settings.most_ids:,}"
            )

    def _extend(self, proposal: m.Proposal) -> None:
        """An extension is of the rows that this side has, too, and is about those of its ids that have none.

        Stopped between two sides' writing, an alignment may be extended here and not there: it is extended again from
        where both were.
        """
        if (self.present is None) != (proposal.extends is None):
            theirs, ours = ("makes a new alignment", "extends") if self.present else ("extends one", "makes a new one")
            raise Refused(
                f"{m.called(COORDINATOR)} {theirs}, and {self._sender.line.me!r} {ours}; say --more on all sides, or "
                "on none"
            )
        if self.present is None or proposal.extends is None:
            return
        if proposal.extends not in (self.present.digest, *self.present.extends):
            raise Refused(
                f"{m.called(COORDINATOR)} extends the alignment {proposal.extends[:12]}, and {self._sender.line.me!r} "
                f"has {self.present.digest[:12]}; align anew on all sides, without --more"
            )
        self._former = self.present.as_of(proposal.extends)
        former = self._former.agreed
        if (proposal.keep, proposal.parties) != (former.keep, former.parties):
            raise Refused(f"{m.called(COORDINATOR)} extends an alignment with other parties, or keeps other rows")
        self._ids = new_ids(self._all, self._former, self.withdrawn)

    def _join(self, proposal: m.Proposal) -> None:
        pair, me = KeyPair.new(), self._sender.line.me
        cipher = Cipher.between(pair, bytes.fromhex(proposal.key), f"{proposal.attempt} {me}")
        request = Parts(proposal.ids, f"the request of {m.called(COORDINATOR)}")
        now = _Attempt(proposal, cipher, new_key(), random_order(len(self._ids)), request)
        self._now = now
        join = m.Join(attempt=proposal.attempt, proposal=proposal.digest, ids=len(self._ids), key=pair.public.hex())
        self._sender.sign(COORDINATOR, "JOIN", join)
        shuffled = [self._ids[place] for place in now.order]
        for part in range(parts_of(len(shuffled))):  # before any response: the label holder has work to do on these
            self._workers.give(("SETUP", me, part), blind, cut(shuffled, part), proposal.name, now.key)

    def _here(self) -> _Attempt:
        if self._now is None:
            raise WireError(f"{m.called(COORDINATOR)} goes on although nothing was agreed")
        return self._now

    def _request(self, notice: Notice) -> None:
        points, now, part = self._sender.verified(notice), self._here(), m.read(m.Part, notice).part
        now.request.check(part, points)
        if part not in now.request:
            now.request.put(part, points)
            tag = ("RESPONSE", COORDINATOR, part)
            self._workers.give(tag, blind_again, points, now.key, m.called(COORDINATOR))

    def _result(self, notice: Notice) -> None:
        now = self._here()
        m.read(m.Bare, notice)
        summary = m.read_body(m.Summary, self._sender.decrypted(notice, now.cipher), notice)
        own, theirs = len(self._ids), now.proposal.ids
        least = 1 if self._former is None else 0
        fits = least <= summary.rows <= summary.matched <= min(own, theirs) and summary.complete <= summary.rows
        if not fits or summary.complete + summary.partial > theirs or (now.proposal.keep == "all" and summary.partial):
            raise WireError(f"{m.called(COORDINATOR)} sent a RESULT whose counts cannot be")
        now.summary = summary
        self._finish(now)

    def _rows(self, notice: Notice) -> None:
        now, part = self._here(), m.read(m.Part, notice).part
        body = self._sender.decrypted(notice, now.cipher)
        if part * ROWS_PART >= len(self._ids) or len(body) > 8 * ROWS_PART:
            raise WireError(f"{m.called(COORDINATOR)} sent ROWS for more ids than {self._sender.line.me!r} has")
        now.rows[part] = body
        self._finish(now)

    def _finish(self, now: _Attempt) -> None:
        """Once everything is there: check the rows, write them, and only then say so."""
        summary = now.summary
        if summary is None or self._alignment is not None or len(now.rows) < -(-summary.rows // ROWS_PART):
            return
        places, rows = _checked_rows(b"".join(now.rows[part] for part in sorted(now.rows)), len(self._ids), summary)
        proposal, me = now.proposal, self._sender.line.me
        agreed = Agreed(
            proposal.name, proposal.attempt, proposal.parties, proposal.keep, summary.complete, summary.partial
        )
        match = PartyMatch(me, len(self._ids), summary.matched)
        left_out = len(self._ids) - len(rows)
        report = MatchReport(proposal.ids, (match,), summary.complete, summary.partial, left_out)
        ids = tuple(self._ids[place] for place in now.order[places])
        alignment = Alignment(me, agreed, rows, ids, None, report)
        if self._former is not None:
            alignment = extended(self._former, alignment)
        write_alignment(self._folder, alignment)
        if self._former is not None:
            self.present = alignment  # a label holder that dies before it says STOP comes back, and extends this one
        self.notify("written", rows=len(alignment.ids))
        bare = m.Bare(attempt=proposal.attempt)
        self._sender.encrypt(COORDINATOR, "DONE", bare, alignment.digest.encode(), now.cipher)
        self._alignment = alignment

    def _stop(self, notice: Notice) -> None:
        self._sender.verified(notice)
        why = m.read(m.Stop, notice).why
        self._stopped = True
        if why == "done":
            if self._alignment is None:
                raise WireError(f"{m.called(COORDINATOR)} ends although {self._sender.line.me!r} has no rows yet")
            return
        if why == "rows":
            if self._former is not None:
                raise RowsDisagree("the label holder found no new ids that have a row; the alignment stays as it is")
            raise RowsDisagree(f"the label holder found no rows that all sides share; {HINT}")
        if why == "refused":
            raise Refused("the label holder gave the alignment up because a party did not agree")
        raise LinkError("the label holder gave the alignment up because of a fault; ask there, then start again")

    _handlers: dict[str, Callable[[Party, Notice], None]] = {  # noqa: RUF012  # never changed
        "REQUEST": _request,
        "RESULT": _result,
        "ROWS": _rows,
        "STOP": _stop,
    }

    def leave(self, error: ColonnadeError) -> None:
        """Tell the label holder that this side ends; a policy's reason is told, anything else stays here."""
        if self._attempt is None or self._stopped:
            return
        reason = str(error) if isinstance(error, Refused) else f"its side ended with a {type(error).__name__}"
        refusal = m.Refusal(attempt=self._attempt, reason=m.readable(reason))
        self._sender.send(COORDINATOR, "REFUSE", refusal)


def _checked_rows(body: bytes, ids: int, summary: m.Summary) -> tuple[np.ndarray, np.ndarray]:
    """Places in our setup and row numbers; `WireError` unless they can be what the summary says."""
    wrong = WireError(f"{m.called(COORDINATOR)} sent ROWS that cannot be: too few, too many, out of order or range")
    if len(body) != 8 * summary.rows:
        raise wrong
    pairs = np.frombuffer(body, dtype="<i4").astype(np.int64).reshape(-1, 2)
    places, rows = pairs[:, 0], pairs[:, 1].copy()
    if not len(pairs):  # of the new ids of an extension this party has none
        return places, rows
    ascending = bool((np.diff(rows) > 0).all()) and rows[0] >= 0 and rows[-1] < summary.complete + summary.partial
    has_complete = bool((rows[: summary.complete] == np.arange(summary.complete)).all())
    known = places.min() >= 0 and places.max() < ids and len(np.unique(places)) == len(places)
    if not (ascending and has_complete and known):
        raise wrong
    return places, rows
