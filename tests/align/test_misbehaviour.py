"""A side that does not keep to the protocol is refused by name, whatever it sends; nothing is written."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from colonnade.align import messages as m
from colonnade.align.private import blind, blind_again, new_key
from colonnade.errors import ColonnadeError, IdentityError, Refused, WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice
from tests.align.conftest import NewMeeting
from tests.align.hub import Hub

IDS = ["a", "b", "c", "d"]
ANY = "0" * 32


class Loose(m.Facts):
    """Facts that are whatever a test likes."""

    model_config = m.Facts.model_config | {"extra": "allow"}


@dataclass
class Puppet:
    """One side played by a test, as honest as the test lets it be."""

    me: str
    hub: Hub
    credentials: Credentials
    pair: KeyPair = field(default_factory=KeyPair.new)
    key: bytes = field(default_factory=new_key)
    cipher: Cipher | None = None
    attempt: str = ANY

    def __post_init__(self) -> None:
        self.line = self.hub.line(self.me)
        self.sender = m.Sender(self.line, self.credentials, "trial")

    def receive(self, kind: str) -> Notice:
        """The next notice of this kind."""
        for _ in range(200):
            notice = self.line.receive(0.05)
            if notice is not None and notice.kind == kind:
                return notice
        raise AssertionError(f"no {kind} came")

    def sealed(self, kind: str, body: bytes, cipher: Cipher | None = None, **facts: Any) -> None:
        to = "telco" if self.me == COORDINATOR else COORDINATOR
        used = cipher or self.cipher
        assert used is not None
        self.sender.encrypt(to, kind, Loose(attempt=self.attempt, **facts), body, used)


class Party(Puppet):
    """A party as a puppet, before a real label holder."""

    def proposal(self) -> m.Proposal:
        found = m.read(m.Proposal, self.receive("PROPOSE"))
        self.attempt = found.attempt
        self.cipher = Cipher.between(self.pair, bytes.fromhex(found.key), f"{found.attempt} {self.me}")
        return found

    def join(self, **changed: Any) -> None:
        proposal = self.proposal()
        facts = {"proposal": proposal.digest, "ids": len(IDS), "key": self.pair.public.hex(), "attempt": self.attempt}
        self.sender.sign(COORDINATOR, "JOIN", Loose(**{**facts, **changed}))

    def setup(self, points: bytes | None = None, **facts: Any) -> None:
        self.sealed("SETUP", blind(IDS, "trial", self.key) if points is None else points, **{"part": 0, **facts})

    def answer(self, change: Callable[[bytes], bytes] = lambda points: points) -> None:
        asked = self.receive("REQUEST").blobs["points"]
        self.sealed("RESPONSE", change(blind_again(asked, self.key, "x")), part=0)


OTHERS: dict[str, Credentials] = {}


def signed_by_another(p: Party) -> None:
    p.sender.credentials = OTHERS["shop"]
    p.join()


def unsigned(p: Party) -> None:
    proposal = p.proposal()
    join = m.Join(attempt=p.attempt, proposal=proposal.digest, ids=4, key=p.pair.public.hex())
    p.sender.send(COORDINATOR, "JOIN", join)


def joined(then: Callable[[Party], None]) -> Callable[[Party], None]:
    def act(p: Party) -> None:
        p.join()
        then(p)

    return act


def curve_point_of_nobody() -> bytes:
    return b"\x02" + bytes(31) + b"\x01"  # x = 1 is on no point of P-256


def only_setups(p: Party) -> None:
    p.proposal()
    for _ in range(400):
        p.setup()


def twice_the_same_answer(points: bytes) -> bytes:
    return points[:33] * (len(points) // 33)


def everything_but_done(p: Party, then: Callable[[Party], None]) -> None:
    p.join()
    p.setup()
    p.answer()
    p.receive("ROWS")
    then(p)


BAD_PARTIES: dict[str, tuple[Callable[[Party], None], type[ColonnadeError], str]] = {
    "joins unsigned": (unsigned, IdentityError, "'telco'"),
    "joins in another's name": (signed_by_another, IdentityError, "'shop'"),
    "joins something else": (lambda p: p.join(proposal="0" * 64), WireError, "party 'telco' agreed to another"),
    "brings no ids": (lambda p: p.join(ids=0), WireError, "party 'telco' sent a JOIN whose ids"),
    "brings a text of ids": (lambda p: p.join(ids="4"), WireError, "whose ids"),
    "brings true ids": (lambda p: p.join(ids=True), WireError, "whose ids"),
    "says more than asked": (lambda p: p.join(note="x"), WireError, "whose note"),
    "has no key": (lambda p: p.join(key="xyz"), WireError, "whose key"),
    "has a key everybody knows": (lambda p: p.join(key="00" * 32), IdentityError, "public key"),
    "never joins": (only_setups, WireError, "does not join"),
    "unknown kind": (joined(lambda p: p.sealed("SING", b"la")), WireError, "party 'telco' sent a 'SING'"),
    "part out of range": (joined(lambda p: p.setup(part=1)), WireError, "party 'telco' has 1 parts"),
    "part below zero": (joined(lambda p: p.setup(part=-1)), WireError, "whose part"),
    "part too short": (joined(lambda p: p.setup(b"\x02" * 33)), WireError, "33 bytes, needed 132"),
    "part empty": (joined(lambda p: p.setup(b"")), WireError, "0 bytes"),
    "no point of the curve": (
        joined(lambda p: p.setup(4 * curve_point_of_nobody())),
        WireError,
        "party 'telco' sent a blinded id that is no point",
    ),
    "encrypted with another key": (
        joined(lambda p: p.setup(cipher=Cipher.between(KeyPair.new(), p.pair.public, "x"))),
        WireError,
        "party 'telco' sent a SETUP that cannot be decrypted",
    ),
    "not encrypted at all": (
        joined(lambda p: p.sender.send(COORDINATOR, "SETUP", m.Part(attempt=p.attempt, part=0))),
        WireError,
        "cannot be decrypted",
    ),
    "one answer for all": (
        joined(lambda p: (p.setup(), p.answer(twice_the_same_answer))[0]),
        WireError,
        "the response of party 'telco': the same blinded id comes twice",
    ),
    "one id many times": (
        joined(lambda p: (p.setup(4 * blind(["a"], "trial", p.key)), p.answer())[0]),
        WireError,
        "the setup of party 'telco': the same blinded id comes twice",
    ),
    "done too early": (joined(lambda p: p.sealed("DONE", b"x")), WireError, "party 'telco' says it is done"),
    "done with something else": (
        lambda p: everything_but_done(p, lambda p: p.sealed("DONE", b"0" * 64)),
        WireError,
        "done with something else",
    ),
    "refuses at length": (
        joined(lambda p: p.sender.send(COORDINATOR, "REFUSE", Loose(attempt=p.attempt, reason="x" * 501))),
        WireError,
        "whose reason",
    ),
    "refuses in colour": (
        joined(lambda p: p.sender.send(COORDINATOR, "REFUSE", Loose(attempt=p.attempt, reason="no\x1b[31m\n!"))),
        Refused,
        r"party 'telco' does not agree: no \[31m !",
    ),
    "greets strangely": (lambda p: p.sender.send(COORDINATOR, "HELLO", Loose(session=5)), WireError, "whose session"),
}


@pytest.mark.parametrize("name", BAD_PARTIES)
def test_the_label_holder_refuses(meeting: NewMeeting, credentials: Mapping[str, Credentials], name: str) -> None:
    act, kind, sentence = BAD_PARTIES[name]
    OTHERS.update(credentials)
    here = meeting(parties=("telco",))
    holder = here.label_holder(IDS)
    party = Party("telco", here.hub, credentials["telco"])
    act(party)
    error = holder.wait().error
    assert isinstance(error, kind), repr(error)
    with pytest.raises(kind, match=sentence):
        raise error
    assert party.receive("STOP").facts["why"] == ("refused" if kind is Refused else "fault")
    assert not list(here.folder.rglob("alignment.*"))


class Holder(Puppet):
    """A label holder as a puppet, before a real party."""

    def propose(self, **changed: Any) -> None:
        self.attempt = secrets.token_hex(16)
        facts = {"format": 1, "name": "trial", "attempt": self.attempt, "parties": ["telco"], "keep": "all", "ids": 4}
        self.sender.sign("*", "PROPOSE", Loose(**{**facts, "key": self.pair.public.hex(), **changed}))

    def agree(self) -> None:
        self.propose()
        join = m.read(m.Join, self.receive("JOIN"))
        self.cipher = Cipher.between(self.pair, bytes.fromhex(join.key), f"{self.attempt} telco")

    def ask(self, points: bytes | None = None, part: int = 0) -> None:
        points = blind(IDS, "trial", self.key) if points is None else points
        self.sender.sign("*", "REQUEST", Loose(attempt=self.attempt, part=part), points)

    def result(self, rows: object = ((0, 0), (1, 1)), **changed: Any) -> None:
        self.agree()
        body = Loose(**{"complete": 2, "partial": 0, "matched": 2, "rows": 2, **changed})
        self.sealed("RESULT", body.model_dump_json().encode())
        self.sealed("ROWS", np.array(rows, dtype="<i4").tobytes(), part=0)


def agreed(then: Callable[[Holder], None]) -> Callable[[Holder], None]:
    def act(h: Holder) -> None:
        h.agree()
        then(h)

    return act


def in_anothers_name(h: Holder) -> None:
    h.sender.credentials = OTHERS["shop"]
    h.propose()


def changed_on_its_way(h: Holder) -> None:
    h.hub.change = lambda to, n: (
        (Notice(n.run, n.number, n.kind, n.sender, {**n.facts, "ids": 5}, n.blobs),) if n.kind == "PROPOSE" else (n,)
    )
    h.propose()


def points_changed_on_their_way(h: Holder) -> None:
    def swapped(to: str, n: Notice) -> tuple[Notice]:
        points = n.blobs.get("points", b"")
        return (Notice(n.run, n.number, n.kind, n.sender, n.facts, {"points": points[33:] + points[:33]}),)

    h.agree()
    h.hub.change = lambda to, n: swapped(to, n) if n.kind == "REQUEST" else (n,)
    h.ask()


BAD_HOLDERS: dict[str, tuple[Callable[[Holder], None], type[ColonnadeError], str]] = {
    "proposes in another's name": (in_anothers_name, IdentityError, "'shop'"),
    "proposal changed on its way": (changed_on_its_way, IdentityError, "does not hold"),
    "speaks another version": (
        lambda h: h.propose(format=2),
        WireError,
        "the label holder sent a PROPOSE whose format",
    ),
    "does not mean us": (lambda h: h.propose(parties=["shop"]), Refused, "has no part in"),
    "means another alignment": (lambda h: h.propose(name="other"), Refused, "has no part in"),
    "brings minus one id": (lambda h: h.propose(ids=-1), WireError, "whose ids"),
    "keeps nothing": (lambda h: h.propose(keep="none"), WireError, "whose keep"),
    "unknown kind": (agreed(lambda h: h.sealed("SING", b"la")), WireError, "sent a 'SING'"),
    "request changed on its way": (points_changed_on_their_way, IdentityError, "does not hold"),
    "request too long": (agreed(lambda h: h.ask(b"\x02" * 165)), WireError, "165 bytes, needed 132"),
    "request out of range": (agreed(lambda h: h.ask(part=1)), WireError, "has 1 parts"),
    "no point of the curve": (agreed(lambda h: h.ask(4 * curve_point_of_nobody())), WireError, "the label holder sent"),
    "more rows than ids": (lambda h: h.result(rows=[(0, 0)] * 5, matched=5), WireError, "counts cannot be"),
    "fewer rows than complete": (lambda h: h.result(complete=3), WireError, "counts cannot be"),
    "partial rows nobody asked for": (lambda h: h.result(partial=1), WireError, "counts cannot be"),
    "no JSON": (agreed(lambda h: h.sealed("RESULT", b"{")), WireError, "not JSON"),
    "no object": (agreed(lambda h: h.sealed("RESULT", b"[]")), WireError, "RESULT whose content"),
    "rows out of order": (lambda h: h.result(((0, 1), (1, 0))), WireError, "ROWS that cannot be"),
    "the same id twice": (lambda h: h.result(((1, 0), (1, 1))), WireError, "ROWS that cannot be"),
    "an id we do not have": (lambda h: h.result(((0, 0), (4, 1))), WireError, "ROWS that cannot be"),
    "a row below zero": (lambda h: h.result(((0, -1), (1, 0))), WireError, "ROWS that cannot be"),
    "too few rows": (lambda h: h.result(((0, 0),)), WireError, "ROWS that cannot be"),
    "rows of a strange part": (agreed(lambda h: h.sealed("ROWS", b"x" * 8, part=7)), WireError, "more ids than"),
    "ends before the rows": (
        agreed(lambda h: h.sender.sign("*", "STOP", m.Stop(attempt=h.attempt, why="done"))),
        WireError,
        "has no rows yet",
    ),
    "stops for no reason": (
        agreed(lambda h: h.sender.sign("*", "STOP", Loose(attempt=h.attempt, why="so"))),
        WireError,
        "whose why",
    ),
    "stops unsigned": (
        agreed(lambda h: h.sender.send("*", "STOP", m.Stop(attempt=h.attempt, why="rows"))),
        IdentityError,
        "'coordinator'",
    ),
}


@pytest.mark.parametrize("name", BAD_HOLDERS)
def test_a_party_refuses(meeting: NewMeeting, credentials: Mapping[str, Credentials], name: str) -> None:
    act, kind, sentence = BAD_HOLDERS[name]
    OTHERS.update(credentials)
    here = meeting(parties=("telco",))
    party = here.party("telco", IDS)
    act(Holder(COORDINATOR, here.hub, credentials[COORDINATOR]))
    error = party.wait().error
    assert isinstance(error, kind), repr(error)
    with pytest.raises(kind, match=sentence):
        raise error
    assert not list(here.folder.rglob("alignment.*"))


def test_an_honest_puppet_is_believed(meeting: NewMeeting, credentials: Mapping[str, Credentials]) -> None:
    """The puppets above fail for what they do wrong, not for being puppets."""
    here = meeting(parties=("telco",))
    holder = here.label_holder(IDS[:3])
    party = Party("telco", here.hub, credentials["telco"])
    party.join()
    party.setup()
    party.answer()
    party.receive("ROWS")
    found = [facts for _, event, facts in here.events if event == "matched"]
    assert found == [{"complete": 3, "partial": 0}]
    party.sender.send(COORDINATOR, "REFUSE", m.Refusal(attempt=party.attempt, reason="enough"))
    assert isinstance(holder.wait().error, Refused)

    here = meeting(parties=("telco",))
    real = here.party("telco", IDS)
    puppet = Holder(COORDINATOR, here.hub, credentials[COORDINATOR])
    puppet.result()
    puppet.receive("DONE")
    puppet.sender.sign("*", "STOP", m.Stop(attempt=puppet.attempt, why="done"))
    assert real.wait().error is None
