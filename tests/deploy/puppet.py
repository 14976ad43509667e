"""The coordinator's certificate in the hands of a test, and what it tells a real party that no coordinator should.

Each lie is published past the link, on the subject of all parties or of one. What the party tells its operator
about it, and whether anything in its store changed, is a `Reaction`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade import checkpoint
from colonnade.deploy.agreement import JOIN, Agreement, Joined, Proposal, propose, read_join, settle
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.encryption import MARK, secrets_for
from colonnade.engines.message import address
from colonnade.engines.nats import NatsLink
from colonnade.identity.certificates import make_trial
from colonnade.identity.cipher import KeyPair
from colonnade.identity.credentials import Connection, Credentials
from colonnade.run import Run
from colonnade.wire.container import LIMIT
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import canonical
from tests.deploy.lies import LEFT_OUT, Truth, as_message, publish
from tests.deploy.trials import DATA, RUN, Stage
from tests.federations import small
from tests.identity.issuing import issue, loaded

LISTENER = "party_1"
POLICY = {"most_rounds": 10, "most_rows_per_prediction": 5}
NUMBER = 3  # the request that the party expects when it is lied to
REACTIONS = ("refused", "refusing", "repeating", "answered")


@dataclass(frozen=True)
class Reaction:
    """What a party told its operator about a message, what it answered, and whether its store changed."""

    event: str
    reason: str
    changed: bool


class Puppet:
    """A coordinator of one party, whose link the test may use as it likes."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.folder, self.own = stage, folder, stage.server.credentials(COORDINATOR)
        self.link = NatsLink(self.own, RUN, lambda *_, **__: None).open()
        undertaking = replace(stage.trial.undertaking(), parties=(LISTENER,))
        place = stage.trial.place(COORDINATOR)
        self.process = CoordinatorProcess(place, self.link, self.own, undertaking, lambda *_, **__: None)
        self.link.lay((LISTENER,))
        self.link.listen()
        self.seen = 0

    # -- what it may say ----------------------------------------------------------------------

    def proposal(self, by: Credentials | None = None, train: Tensor | None = None, **changes: Any) -> Proposal:
        u = self.process.undertaking
        rows = u.split.train if train is None else train
        return propose({**u.body(RUN), **changes}, rows, self.process.keys.public, by or self.own)

    def joined(self) -> Joined:
        """The party's consent to the right proposal."""
        proposal = self.proposal()
        heard = self.process.roll_call(proposal.notice(), JOIN, lambda n: read_join(n, proposal, self.own))
        return heard[LISTENER]

    def agreement(self, consent: Joined, by: Credentials | None = None, key: bytes | None = None) -> Agreement:
        """An agreement with the party; the run's key is encrypted for `key`."""
        proposal = self.proposal()
        secrets = secrets_for(self.process.keys, {LISTENER: key or consent.key}, proposal.digest)
        return settle(proposal, {LISTENER: consent}, secrets, by or self.own)

    def next_request(self) -> Truth:
        """The next request as it should be."""
        trainer = self.process._trainer(self.agreed)
        checkpoint.restore(trainer, self.process.store)
        return Truth.of(trainer.coordinator.request()[1].everyone.payload)

    # -- and what comes of it -----------------------------------------------------------------

    def notify(self, payload: bytes, expected: str, to: str = "*") -> Reaction:
        """Publish as it is; wait until the party has reacted as expected, or has not."""
        before = self.stage.state(LISTENER)
        publish(self.link, payload, to)
        entry = self._reaction(expected)
        return Reaction(entry["event"], entry.get("reason", ""), self.stage.state(LISTENER) != before)

    def encrypt(self, payload: bytes, number: int = NUMBER, to: str = "*") -> bytes:
        assert self.link.encryption is not None
        return self.link.encryption.encrypt(to, address(self.link.run, self.link.me, to), number, payload)

    def _reaction(self, expected: str) -> Mapping[str, Any]:
        """The next reaction; on a busy machine a message may come twice, so another one may be in between."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            told = [entry for entry in self.stage.events(LISTENER) if entry["event"] in REACTIONS][self.seen :]
            for number, entry in enumerate(told, start=1):
                if expected == entry["event"] or expected in entry.get("reason", ""):
                    self.seen += number
                    return entry
            time.sleep(0.005)
        return {"event": "nothing", "reason": f"not {expected!r}, but {self.stage.events(LISTENER)[-3:]}"}

    def drain(self) -> None:
        """Read what the party answered, so that the honest coordinator does not meet it."""
        while (incoming := self.link.next(0.3)) is not None:
            self.link.done([incoming])

    # -- the honest part ----------------------------------------------------------------------

    def agree(self) -> None:
        """Agree with the party as a coordinator does, and do the rounds before the one to lie about."""
        self.agreed = self.process._agreement()
        trainer = self.process._trainer(self.agreed)
        for _ in range(NUMBER - 1):
            request, down = trainer.coordinator.request()
            checkpoint.commit(trainer, self.process.store)
            trainer.coordinator.receive(request, trainer.engine.run_round(request, down))
            self._reaction("answered")
        trainer.coordinator.request()
        checkpoint.commit(trainer, self.process.store)

    def finish(self) -> Run:
        """Train to the end, from the store."""
        run = self.process._trainer(self.agreed).train(self.process.store)
        self.process._close(patience=120)
        return run

    def close(self) -> None:
        self.link.close()

    # -- other people's signatures --------------------------------------------------------------

    def expired(self) -> Credentials:
        """A coordinator's certificate of the right authority that has run out."""
        old = issue(COORDINATOR, by=loaded(self.stage.server.certificates, "ca"), days=(-3, -1))
        return replace(self.own, _chain=(old.certificate,), _key=old.key)

    def foreign(self) -> Credentials:
        """A coordinator of another authority."""
        certs = self.folder / "foreign"
        make_trial(certs, (LISTENER,))
        files = {"certificate": certs / f"{COORDINATOR}.crt", "key": certs / f"{COORDINATOR}.key"}
        return Credentials.load(Connection(server=self.stage.server.url, authority=certs / "ca.crt", **files))

    def party(self) -> Credentials:
        return self.stage.server.credentials("party_0")


def flipped(payload: bytes) -> bytes:
    """With another last bit."""
    return payload[:-1] + bytes([payload[-1] ^ 1])


def changed(proposal: Proposal, **changes: Any) -> bytes:
    """A proposal whose text is not the one that was signed."""
    return replace(proposal, body={**proposal.body, **changes}).notice().payload


# -- before anything was agreed on ----------------------------------------------------------------

Words = Callable[[Puppet], bytes]
PROPOSALS: dict[str, tuple[Words, str]] = {
    "garbage": (lambda p: b"garbage" * 50, "truncated or not a message at all"),
    "a proposal signed by a party": (
        lambda p: p.proposal(p.party()).notice().payload,
        "belongs to 'party_0'; only 'coordinator' may sign this",
    ),
    "a proposal changed after it was signed": (
        lambda p: changed(p.proposal(), outputs=2),
        "the signature of 'coordinator' does not hold",
    ),
    "a proposal of other rows than were signed": (
        lambda p: replace(p.proposal(), train=torch.arange(5)).notice().payload,
        "the proposal's run or training rows are not those that were signed",
    ),
    "a proposal with an expired certificate": (lambda p: p.proposal(p.expired()).notice().payload, "expired on"),
    "a proposal of a foreign authority": (
        lambda p: p.proposal(p.foreign()).notice().payload,
        "is not one of the authority's client certificates",
    ),
    "a proposal without text": (lambda p: Truth.of(p.proposal().notice().payload).but(facts={}), "lacks its text"),
    "a proposal of another format": (
        lambda p: p.proposal(format=1).notice().payload,
        "the proposal has format 1, this version joins format 4 only",
    ),
    "a proposal for another run": (
        lambda p: Truth.of(p.proposal().notice().payload).but(run="other"),
        "this party listens to the coordinator of 'test'",
    ),
    "a proposal in a party's name": (
        lambda p: Truth.of(p.proposal().notice().payload).but(sender="party_0"),
        "this party listens to the coordinator of 'test'",
    ),
    "an unknown method": (
        lambda p: p.proposal(method={"name": "magic", "settings": {}}).notice().payload,
        "unknown method 'magic'",
    ),
    "an unknown setting": (
        lambda p: p.proposal(method={"name": "vimadmm", "settings": {"speed": 1}}).notice().payload,
        "'speed'",
    ),
    "no rows": (lambda p: p.proposal(rows=0).notice().payload, "the proposal is about 0 rows"),
    "rows that there are not": (
        lambda p: p.proposal(train=torch.tensor([5, 90])).notice().payload,
        "the proposal's training rows are not among its 90 rows",
    ),
    "one row many times": (
        lambda p: p.proposal(train=torch.tensor([5, 6, 5, 5])).notice().payload,
        "the proposal names training rows more than once, 2 times in all",
    ),
    "more rows than the party has": (
        lambda p: p.proposal(rows=1000).notice().payload,
        "the proposal is about 1000 rows; this party has 90; align again",
    ),
    "a proposal without this party": (
        lambda p: p.proposal(parties=["party_0"]).notice().payload,
        "'party_1' is not among the parties of the proposal: party_0",
    ),
    "another protection": (
        lambda p: p.proposal(mechanism="none").notice().payload,
        "the proposal asks for mechanism 'none' between columns and wire; this party is set to 'seeded noise",
    ),
    "noise of the method's own instead of the party's": (
        lambda p: (
            p.proposal(
                method={"name": "vafl", "settings": {"noise": 1e-9}}, mechanism="bounded gaussian", purposes=["TRAIN"]
            )
            .notice()
            .payload
        ),
        "which the proposal's own protection would replace",
    ),
    "noise of the method's own under another name": (
        lambda p: p.proposal(method={"name": "vafl", "settings": {"noise": 1e-9}}).notice().payload,
        "this party is set to 'bounded gaussian'",
    ),
    "a secure sum instead of the party's noise": (
        lambda p: (
            p.proposal(
                method={"name": "vimadmm_j", "settings": {}}, privacy={"secure_sum": {"use": True, "colluders": 1}}
            )
            .notice()
            .payload
        ),
        "which the proposal's own protection would replace",
    ),
    "more rounds than the policy allows": (
        lambda p: p.proposal(training={**p.proposal().body["training"], "rounds": 11}).notice().payload,
        "most_rounds: 11 rounds were asked for, the policy allows 10;",
    ),
    "a purpose that the policy does not allow": (
        lambda p: p.proposal(purposes=["TRAIN", "EXPLAIN"]).notice().payload,
        "purposes: EXPLAIN was asked for, the policy allows TRAIN, EVALUATE, PREDICT;",
    ),
    "a request without an agreement": (
        lambda p: as_message({"version": 1, "run": RUN, "number": 1, "kind": "ALL", "sender": COORDINATOR}, {}),
        "a message 'ALL' that is not encrypted",
    ),
    "an order of a run it knows nothing of": (
        lambda p: MARK + (1).to_bytes(8, "big") + bytes(100),
        "party 'party_1' has no record of this run; put its folder back or begin anew",
    ),
}

# -- after the party has joined, before it agreed ---------------------------------------------------

Offer = Callable[[Puppet, Joined], bytes]


def _other_network(p: Puppet, consent: Joined) -> bytes:
    return p.agreement(_says(consent, width=9)).notice().payload


def _keys_of_its_own(p: Puppet, consent: Joined) -> bytes:
    """The coordinator in the middle: it puts a key of its own where the party's was."""
    return p.agreement(_says(consent, key=KeyPair.new().public.hex())).notice().payload


def _says(consent: Joined, **changes: Any) -> Joined:
    body = {**consent.consent["body"], **changes}
    return replace(consent, consent={**consent.consent, "body": body})


def _about_another(p: Puppet, consent: Joined) -> bytes:
    other = p.proposal(outputs=2)
    secrets = secrets_for(p.process.keys, {LISTENER: consent.key}, other.digest)
    return settle(other, {LISTENER: consent}, secrets, p.own).notice().payload


def _other_parties(p: Puppet, consent: Joined) -> bytes:
    both = {LISTENER: consent, "party_0": consent}
    proposal = p.proposal(parties=list(both))
    secrets = secrets_for(p.process.keys, dict.fromkeys(both, consent.key), p.proposal().digest)
    agreement = settle(proposal, both, secrets, p.own)
    body = {**Truth.of(agreement.notice().payload).header["facts"]["body"], "proposal": p.proposal().digest}
    return _signed_again(p, agreement, body)


def _signed_again(p: Puppet, agreement: Agreement, body: Mapping[str, Any]) -> bytes:
    facts = {**agreement.notice().facts, "body": body, "signature": p.own.sign(canonical(body))}
    return replace(agreement.notice(), facts=facts).payload


def _changed_later(p: Puppet, consent: Joined) -> bytes:
    notice = p.agreement(consent).notice()
    body = {**notice.facts["body"], "more": 1}
    return replace(notice, facts={**notice.facts, "body": body}).payload


AGREEMENTS: dict[str, tuple[Offer, str]] = {
    "an agreement signed by a party": (
        lambda p, c: p.agreement(c, p.party()).notice().payload,
        "belongs to 'party_0'; only 'coordinator' may sign this",
    ),
    "an agreement with an expired certificate": (
        lambda p, c: p.agreement(c, p.expired()).notice().payload,
        "expired on",
    ),
    "an agreement changed after it was signed": (_changed_later, "the signature of 'coordinator' does not hold"),
    "an agreement about another proposal": (_about_another, "the agreement is about another proposal than the one"),
    "an agreement of other parties": (_other_parties, "belongs to 'party_1'; only 'party_0' may sign this"),
    "an agreement about another network": (_other_network, "the signature of 'party_1' does not hold"),
    "an agreement with a key of the coordinator's own": (_keys_of_its_own, "the signature of 'party_1' does not hold"),
    "an agreement with somebody else's key": (
        lambda p, c: p.agreement(c, key=KeyPair.new().public).notice().payload,
        "a message cannot be decrypted",
    ),
    "an agreement without text": (
        lambda p, c: replace(p.agreement(c).notice(), facts={}).payload,
        "the agreement lacks its text or its signature",
    ),
}

# -- in the middle of the training ------------------------------------------------------------------

Request = Callable[[Puppet, Truth], bytes]


def _ask(purpose: str, rows: Tensor | None, **more: Any) -> Request:
    """An order that is whole (without a part of its own for the party), with one ask of this kind."""

    def make(p: Puppet, t: Truth) -> bytes:
        header = {**t.header, "own": False, "learners": [], "asks": [{"purpose": purpose, "speakers": "*"}], **more}
        return p.encrypt(as_message(header, {} if rows is None else {"rows.0": rows}))

    return make


def _but(**changes: Any) -> Request:
    return lambda p, t: p.encrypt(t.but(**{"own": False, **changes}))


ROWS = torch.arange(4, dtype=torch.int32)
FEDERATION = small(**DATA)
ORDERS: dict[str, tuple[Request, str]] = {
    "garbage": (lambda p, t: b"garbage" * 50, "truncated or not a message at all"),
    "garbage encrypted": (lambda p, t: p.encrypt(b"garbage" * 50), "truncated or not a message at all"),
    "half a request": (lambda p, t: p.encrypt(t.payload[: len(t.payload) // 2]), "the message is damaged"),
    "a damaged envelope": (lambda p, t: flipped(p.encrypt(t.payload)), "a message cannot be decrypted"),
    "a request without an envelope": (lambda p, t: t.payload, "a message 'ALL' that is not encrypted"),
    "a request encrypted for one": (
        lambda p, t: p.encrypt(t.payload, to=LISTENER),  # published to all
        "a message cannot be decrypted",
    ),
    "an old protocol version": (_but(version=0), "has protocol version 0; this is version 1"),
    "an order of another run": (_but(run="other"), "this party listens to the coordinator of 'test'"),
    "a request in a party's name": (_but(sender="party_0"), "this party listens to the coordinator of 'test'"),
    "a request for another party": (_but(to="party_0"), "a message for 'party_0'"),
    "an unknown kind": (_but(kind="SELL", facts={}), "a message of unknown kind 'SELL'"),
    "no kind": (_but(kind=LEFT_OUT), "the message does not say what it is"),
    "no number": (_but(number=LEFT_OUT), "the message does not say what it is"),
    "a number that is too large": (_but(number=2**70), "the message does not say what it is"),
    "a request after the next": (
        _but(number=NUMBER + 2, learners=[]),
        "has carried out round 2 and is asked for 5: its store is an old copy; put the newest one back",
    ),
    "a request without queries": (_but(asks=LEFT_OUT), "the coordinator's message is malformed: KeyError('asks')"),
    "an unknown purpose": (_ask("GOSSIP", ROWS), "the coordinator's message is malformed: ValueError("),
    "rows that are missing": (_ask("TRAIN", None), "the coordinator's message is malformed: KeyError('rows.0')"),
    "a row too far": (_ask("TRAIN", ROWS + 1000), "request 3 asks about row 1003; there are 90"),
    "a row before the first": (_ask("TRAIN", ROWS - 1), "request 3 asks about row"),
    "rows as a table": (_ask("TRAIN", ROWS.reshape(2, 2)), "rows that are no list"),
    "rows as one number": (_ask("TRAIN", ROWS[0]), "rows that are no list"),
    "training on rows that were not agreed on": (
        _ask("TRAIN", FEDERATION.split.validation[:3].int()),
        "request 3 trains on rows that the run did not agree to train on",
    ),
    "evaluating rows that train": (
        _ask("EVALUATE", FEDERATION.split.train[:3].int()),
        "request 3 asks to evaluate rows that train",
    ),
    "two training uploads in one round": (
        lambda p, t: p.encrypt(
            as_message(
                {**t.header, "own": False, "learners": [], "asks": [{"purpose": "TRAIN", "speakers": "*"}] * 2},
                {f"rows.{i}": FEDERATION.split.train[:3].int() for i in (0, 1)},
            )
        ),
        "request 3 asks for 2 training uploads; the run agreed on one in each of",
    ),
    "a purpose that was not agreed on": (_ask("EXPLAIN", ROWS), "the run did not agree on purpose EXPLAIN"),
    "predictions about rows that trained with noise": (
        _ask("PREDICT", FEDERATION.split.train[:2].int()),
        "predict_training_rows: 2 of the rows trained this run, and predicting them would release them without",
    ),
    "more predictions than the policy allows": (
        _ask("PREDICT", torch.arange(6, dtype=torch.int32)),
        "most_rows_per_prediction: 6 rows in one prediction were asked for, the policy allows 5;",
    ),
    "a reply without its arrays": (
        lambda p, t: p.encrypt(
            as_message({**t.header, "own": False}, {k: v for k, v in t.arrays.items() if "rows" in k})
        ),
        "request 3 cannot be carried out: KeyError",
    ),
    "a reply that is not finite": (
        lambda p, t: p.encrypt(t.with_arrays(lambda a: a * float("nan") if a.is_floating_point() else a)),
        "holds NaN or infinite values",
    ),
    "a reply beyond all bounds": (
        lambda p, t: p.encrypt(
            as_message(
                {**t.header, "own": False}, {k: v + 1e16 if v.is_floating_point() else v for k, v in t.arrays.items()}
            )
        ),
        "the reply of request 3 has numbers beyond 1e+15, or that are not finite; it is not used",
    ),
    "a reply of another shape": (
        lambda p, t: p.encrypt(
            as_message({**t.header, "own": False}, {k: v if "rows" in k else v[1:] for k, v in t.arrays.items()})
        ),
        "request 3 cannot be carried out: RuntimeError",
    ),
    "a stop without a reason": (_but(stop={"why": 1}, learners=[]), "a reason to stop that is no text"),
    "too many bytes": (lambda p, t: p.encrypt(t.payload + bytes(LIMIT + 50 - len(t.payload))), "is over the limit of"),
    "another proposal": (
        lambda p, t: p.proposal(outputs=2).notice().payload,
        "run 'test' began with another proposal; choose another name for a new run",
    ),
}
REPEATED = "an order that was carried out"
