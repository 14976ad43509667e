"""The label holder's side: propose, blind, compare, number the rows, tell everyone theirs.

The blinded ids are made once and sent once to all parties: they say the same to everyone. Nothing is kept
between attempts. If a party was started again, or this process was, everything begins anew with fresh keys,
and messages of older attempts are ignored.
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
from colonnade.align.files import Alignment, prepare, read_alignment, set_aside, write_alignment
from colonnade.align.ids import check_ids
from colonnade.align.line import EVERYONE, Line, Notify, silent
from colonnade.align.match import Agreed, MatchReport, Numbered, PartyMatch, number_rows, report_of
from colonnade.align.more import agreed_with, check_same, extended, new_ids
from colonnade.align.parts import ROWS_PART, Parts, cut, parts_of, random_order
from colonnade.align.private import blind, blind_again, new_key
from colonnade.align.settings import MOST_IDS, AlignSettings
from colonnade.align.workers import Workers
from colonnade.errors import ColonnadeError, LinkError, Refused, RowsDisagree, WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice

MOST_EARLY = 256  # messages of a party that are kept until it has joined
MOST_ATTEMPTS = 20  # a party that restarts more often than this is not going to finish


def align_as_label_holder(  # the entry point: six things it needs and one who watches
    line: Line,
    credentials: Credentials,
    settings: AlignSettings,
    ids: Sequence[str],
    folder: Path,
    workers: int = 0,
    notify: Notify = silent,
    withdrawn: frozenset[str] = frozenset(),
) -> Alignment:
    """Find the rows all parties share (or some do), agree on their numbers and write this side's files.

    With `settings.more` the alignment in the folder is extended. Ids that are `withdrawn` get no row.

    Raises:
        RowsDisagree: nothing is shared, or the table has lost rows of the alignment that is extended.
        Refused: a party does not agree.
        WireError, IdentityError: a party sent something that is not what it should be.
        LinkError: a party does not answer.
    """
    ids = check_ids([id for id in ids if id not in withdrawn], MOST_IDS)
    former = read_alignment(folder) if settings.more else None
    if former is not None:
        check_same(settings, former.agreed)
        ids = new_ids(ids, former, withdrawn)
    prepare(folder)
    with Workers(workers) as pool:
        side = LabelHolder(m.Sender(line, credentials, settings.name), settings, ids, pool, notify)
        side.former = former
        side.begin()
        try:
            converse(side, line, pool, settings.patience)
            alignment = side.alignment()
            set_aside(folder, alignment)
            write_alignment(folder, alignment)
        except ColonnadeError as error:
            with contextlib.suppress(ColonnadeError):  # the line may be what failed
                side.stop(_in_one_word(error))
            raise
        notify("written", rows=len(alignment.ids))
        side.stop("done")  # parties wait for this, so that whoever is killed before can still start over with all
    return alignment


def _in_one_word(error: ColonnadeError) -> m.Why:
    return "rows" if isinstance(error, RowsDisagree) else "refused" if isinstance(error, Refused) else "fault"


@dataclass
class _Party:
    """What is known of one party in this attempt, once it has joined."""

    ids: int
    cipher: Cipher
    setup: Parts  # H(y)^b, and then with our key: H(y)^(b a)
    twice: Parts
    response: Parts  # H(x)^(a b)
    done: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything is there that the comparison needs."""
        return self.twice.complete and self.response.complete

    def places(self, order: np.ndarray) -> np.ndarray:
        """For each id of ours its place in the party's setup, -1 if the party lacks it."""
        ours = {point: place for place, point in enumerate(self.response.points())}
        where = np.full(len(order), -1, dtype=np.int64)
        for place, point in enumerate(self.twice.points()):
            mine = ours.get(point)
            if mine is not None:
                where[order[mine]] = place
        return where


@dataclass
class _Attempt:
    """Everything that begins anew when an attempt does."""

    proposal: m.Proposal
    pair: KeyPair
    key: bytes
    order: np.ndarray  # position -> place in our list of ids
    parties: dict[str, _Party]
    request: Parts
    early: dict[str, list[Notice]] = field(default_factory=dict)
    outcome: tuple[Numbered, MatchReport] | None = None


class LabelHolder:
    """The role; `converse` moves it."""

    def __init__(
        self, sender: m.Sender, settings: AlignSettings, ids: Sequence[str], workers: Workers, notify: Notify
    ) -> None:
        self._sender, self._settings, self._ids, self._workers, self._notify = sender, settings, ids, workers, notify
        self._sessions: set[tuple[str, str]] = set()  # processes of parties that have said hello
        self._attempts = 0
        self._now: _Attempt
        self.former: Alignment | None = None  # what is extended

    # -- what converse asks ---------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Every party has written its files."""
        parties = self._now.parties
        return len(parties) == len(self._settings.parties) and all(party.done for party in parties.values())

    def awaited(self) -> str:
        """The parties that owe the next thing: to join, to answer, or to be done."""
        parties = self._now.parties
        owing = [name for name in self._settings.parties if name not in parties]
        owing = owing or [name for name, party in parties.items() if not party.complete]
        owing = owing or [name for name, party in parties.items() if not party.done]
        return " and ".join(m.called(name) for name in owing)

    def made(self, tag: tuple[str, str, int], points: bytes) -> None:
        """Blinded ids of ours are sent; those of a party, with our key on top, wait for the comparison."""
        whose, _, part = tag
        now = self._now
        if whose == COORDINATOR:
            now.request.put(part, points)
            if self._all_joined:
                self._ask(part)
        else:
            now.parties[whose].twice.put(part, points)
            self._progress()
            self._conclude()

    def receive(self, notice: Notice) -> None:
        """One notice; strangers cannot stop an alignment, parties can."""
        if notice.sender not in self._settings.parties or notice.run != self._settings.name:
            self._notify("refused", sender=notice.sender, kind=notice.kind, reason="not of this alignment")
            return
        if notice.kind == "HELLO":
            self._hello(notice)
        elif notice.facts.get("attempt") != self._now.proposal.attempt:
            self._notify("ignored", sender=notice.sender, kind=notice.kind, reason="of another attempt")
        elif notice.kind not in self._handlers:
            raise WireError(f"{m.called(notice.sender)} sent a {notice.kind[:40]!r}, which nobody says here")
        elif notice.sender not in self._now.parties and notice.kind not in ("JOIN", "REFUSE"):
            self._put_off(notice)
        else:
            self._handlers[notice.kind](self, notice)

    def _put_off(self, notice: Notice) -> None:
        """After a fault a JOIN may come after what was said later."""
        early = self._now.early.setdefault(notice.sender, [])
        early.append(notice)
        if len(early) > MOST_EARLY:
            raise WireError(f"{m.called(notice.sender)} sends and sends, but does not join")

    # -- the steps, in order --------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new attempt: fresh keys, a fresh order, the proposal to everyone."""
        self._attempts += 1
        if self._attempts > MOST_ATTEMPTS:
            raise LinkError(f"parties were started again {MOST_ATTEMPTS} times during one alignment; find out why")
        self._workers.forget()
        settings, pair = self._settings, KeyPair.new()
        proposal = m.Proposal(
            name=settings.name,
            attempt=secrets.token_hex(16),
            parties=settings.parties,
            keep=settings.keep,
            ids=len(self._ids),
            key=pair.public.hex(),
            extends=self.former.digest if self.former else None,
        )
        request = Parts(len(self._ids), "the request")
        self._now = _Attempt(proposal, pair, new_key(), random_order(len(self._ids)), {}, request)
        self._propose()
        shuffled = [self._ids[place] for place in self._now.order]
        for part in range(parts_of(len(shuffled))):
            tag = (COORDINATOR, "request", part)
            self._workers.give(tag, blind, cut(shuffled, part), settings.name, self._now.key)

    def _propose(self) -> None:
        self._sender.sign(EVERYONE, "PROPOSE", self._now.proposal)
        self._notify("proposed", ids=len(self._ids), attempt=self._attempts)

    def _hello(self, notice: Notice) -> None:
        session = (notice.sender, m.read(m.Hello, notice).session)
        if session in self._sessions:
            return
        self._sessions.add(session)
        if notice.sender in self._now.parties:
            self._notify("started over", party=notice.sender)
            self.begin()
        else:
            self._propose()  # it may have been away when this was said

    def _join(self, notice: Notice) -> None:
        self._sender.verified(notice)
        join, now, name = m.read(m.Join, notice), self._now, notice.sender
        if join.proposal != now.proposal.digest:
            raise WireError(f"{m.called(name)} agreed to another proposal than the one that was made")
        if join.ids > self._settings.most_ids:
            raise Refused(f"{m.called(name)} brings {join.ids:,} ids; most_ids allows {self._settings.most_ids:,}")
        if name in now.parties:
            return  # delivered twice
        cipher = Cipher.between(now.pair, bytes.fromhex(join.key), f"{now.proposal.attempt} {name}")
        setup, twice = (Parts(join.ids, f"the setup of {m.called(name)}") for _ in range(2))
        response = Parts(len(self._ids), f"the response of {m.called(name)}")
        now.parties[name] = _Party(join.ids, cipher, setup, twice, response)
        self._notify("joined", party=name, ids=join.ids)
        if self._all_joined:
            for part in range(now.request.total):
                if part in now.request:
                    self._ask(part)
        for early in now.early.pop(name, []):
            self.receive(early)

    @property
    def _all_joined(self) -> bool:
        return len(self._now.parties) == len(self._settings.parties)

    def _ask(self, part: int) -> None:
        now = self._now
        self._sender.sign(EVERYONE, "REQUEST", m.Part(attempt=now.proposal.attempt, part=part), now.request.get(part))

    def _refuse(self, notice: Notice) -> None:
        raise Refused(f"{m.called(notice.sender)} does not agree: {m.readable(m.read(m.Refusal, notice).reason)}")

    def _setup(self, notice: Notice) -> None:
        party, part, points = self._part_of(notice)
        party.setup.check(part, points)
        if part not in party.setup:
            party.setup.put(part, points)
            tag = (notice.sender, "setup", part)
            self._workers.give(tag, blind_again, points, self._now.key, m.called(notice.sender))

    def _response(self, notice: Notice) -> None:
        party, part, points = self._part_of(notice)
        party.response.check(part, points)
        if part not in self._now.request or not self._all_joined:
            raise WireError(f"{m.called(notice.sender)} answers part {part}, which it was not asked yet")
        if part not in party.response:
            party.response.put(part, points)
            self._progress()
        self._conclude()

    def _part_of(self, notice: Notice) -> tuple[_Party, int, bytes]:
        party = self._now.parties[notice.sender]
        return party, m.read(m.Part, notice).part, self._sender.decrypted(notice, party.cipher)

    def _progress(self) -> None:
        parties = self._now.parties.values()
        done = sum(len(party.twice) + len(party.response) for party in parties)
        self._notify("progress", done=done, total=sum(party.twice.total + party.response.total for party in parties))

    def _conclude(self) -> None:
        """Once everything is there: compare, number the rows, and tell each party its own."""
        now = self._now
        if now.outcome is not None or not self._all_joined or not all(p.complete for p in now.parties.values()):
            return
        places = {name: now.parties[name].places(now.order) for name in self._settings.parties}
        have = {name: where >= 0 for name, where in places.items()}
        have |= {name: np.ones(len(self._ids), dtype=bool) for name in self._settings.own}
        numbered = number_rows(have, self._settings.keep)
        matches = [PartyMatch(name, now.parties[name].ids, int(have[name].sum())) for name in places]
        own = [PartyMatch(name, len(self._ids), len(self._ids), own=True) for name in self._settings.own]
        now.outcome = (numbered, report_of(len(self._ids), (*matches, *own), numbered, self.former is not None))
        for name, where in places.items():
            self._tell(name, where, numbered)
        self._notify("matched", complete=numbered.complete, partial=numbered.partial)

    def _tell(self, name: str, where: np.ndarray, numbered: Numbered) -> None:
        """The rows of one party: (place in its setup, row number), in order of rows."""
        attempt, party = self._now.proposal.attempt, self._now.parties[name]
        rows = np.flatnonzero(numbered.presence[name])
        pairs = np.stack([where[numbered.order[rows]], rows], axis=1).astype("<i4")  # (K, 2)
        summary = m.Summary(
            complete=numbered.complete, partial=numbered.partial, matched=int((where >= 0).sum()), rows=len(rows)
        )
        bare = m.Bare(attempt=attempt)
        self._sender.encrypt(name, "RESULT", bare, summary.model_dump_json().encode(), party.cipher)
        for part, start in enumerate(range(0, len(pairs), ROWS_PART)):
            body = pairs[start : start + ROWS_PART].tobytes()
            self._sender.encrypt(name, "ROWS", m.Part(attempt=attempt, part=part), body, party.cipher)

    def _done(self, notice: Notice) -> None:
        party = self._now.parties[notice.sender]
        m.read(m.Bare, notice)
        told = self._sender.decrypted(notice, party.cipher)
        if self._now.outcome is None or told != self._agreed_in_all().digest.encode():
            raise WireError(f"{m.called(notice.sender)} says it is done with something else than was agreed")
        party.done = True
        self._notify("done", party=notice.sender)

    _handlers: dict[str, Callable[[LabelHolder, Notice], None]] = {  # noqa: RUF012  # never changed
        "JOIN": _join,
        "REFUSE": _refuse,
        "SETUP": _setup,
        "RESPONSE": _response,
        "DONE": _done,
    }

    # -- the end --------------------------------------------------------------------------------------------

    def _agreed_in_all(self) -> Agreed:
        return self._agreed() if self.former is None else agreed_with(self.former.agreed, self._agreed())

    def _agreed(self) -> Agreed:
        proposal, numbered = self._now.proposal, self._outcome()[0]
        counts = (numbered.complete, numbered.partial)
        return Agreed(proposal.name, proposal.attempt, proposal.parties, proposal.keep, *counts)

    def _outcome(self) -> tuple[Numbered, MatchReport]:
        if self._now.outcome is None:
            raise RuntimeError("asked for rows before they were numbered")
        return self._now.outcome

    def alignment(self) -> Alignment:
        """What this side writes."""
        numbered, report = self._outcome()
        ids = tuple(self._ids[place] for place in numbered.order)
        presence = numbered.presence if self._settings.keep == "partial" else None
        found = Alignment(COORDINATOR, self._agreed(), np.arange(len(ids)), ids, presence, report)
        return found if self.former is None else extended(self.former, found)

    def stop(self, why: m.Why) -> None:
        """Tell the parties that this is the end; in one word, because the details are not theirs."""
        self._sender.sign(EVERYONE, "STOP", m.Stop(attempt=self._now.proposal.attempt, why=why))
