"""Agreement: what everybody is about to do, signed by the coordinator, before anything is computed.

PROPOSAL  coordinator -> all    method, settings, rows, parties, purposes; signed
JOIN      party -> coordinator  "I agree to the proposal with this digest", and the shape of its network; signed
AGREED    coordinator -> all    everybody's consent, each with its own signature; signed
DONE      party -> coordinator  it has stored the agreement

Public keys travel along: everything after AGREED is encrypted end to end (`encryption.py`). A party checks every
other party's consent by that party's certificate: the coordinator, who relays them, cannot put keys of its own in
their place. That is what a secure sum stands on.

No code travels: a party that agrees runs the method of that name from its own installation. A party keeps
the signed agreement in its store, so that nobody can later say that something else was agreed on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.config import build
from colonnade.deploy.taken_run import Former
from colonnade.engines.base import Introduction, form_groups
from colonnade.engines.remote import Absence
from colonnade.errors import ColonnadeError, IdentityError, WireError
from colonnade.identity.cipher import KEY, KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.methods.rounds import schedule_of
from colonnade.models.encoders import ModelSettings
from colonnade.models.schema import Group, Schema
from colonnade.privacy.secure_sum.adders import Adders
from colonnade.privacy.secure_sum.roster import Roster
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import DTYPES, Training
from colonnade.schedule import Schedule
from colonnade.tasks import find_task
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, canonical

FORMAT = 4  # 2: requests name all rows by number or bits; 3: one key for envelopes and masks, no HKDF for the run's
READABLE = (FORMAT,)  # of a new run; one that began with an earlier format goes on with that
PROPOSAL, JOIN, AGREED, CLOSE = "PROPOSAL", "JOIN", "AGREED", "CLOSE"
PROPOSED, SETTLED, CLOSED = -1, 0, -3  # the numbers of these messages; requests count from 1
MOST_ROWS = 2**31 - 1
MOST_WIDTH = 2**20


@dataclass(frozen=True)
class Proposal:
    """What the coordinator proposes: plain values, and the training rows."""

    body: Mapping[str, Any]
    train: Tensor = field(repr=False)  # row numbers
    signature: Mapping[str, Any] = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the signed text."""
        return hashlib.sha256(canonical(self.body)).hexdigest()

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who is invited, in federation order."""
        return tuple(self.body["parties"])

    @property
    def key(self) -> bytes:
        """The coordinator's public key."""
        return bytes.fromhex(self.body["key"])

    @property
    def lacking(self) -> bool:
        """Whether rows train that some parties do not hold."""
        return self.body.get("lacking") is True

    @property
    def format(self) -> int:
        """Of its text, and of what follows it."""
        return int(self.body["format"])

    @property
    def short_rows(self) -> bool:
        """Whether requests leave out row numbers that all sides know (`wire/rows.py`)."""
        return self.format > 2

    @property
    def masks_apart(self) -> bool:
        """Whether masks have keys of their own, made when a party joins (`table_ledger.py`)."""
        return self.format > 3 and self.privacy().secure_sum.use

    @property
    def own(self) -> tuple[str, ...]:
        """Parties of the label holder's organisation, as it says; it knows what they add to a secure sum."""
        return tuple(self.body.get("own", ()))

    @property
    def former(self) -> Former | None:
        """The finished run whose parts it takes over; None: everybody trains."""
        return Former.from_json(self.body["takes_over"]) if "takes_over" in self.body else None

    def trains(self, party: str) -> bool:
        """Whether a party trains, and does not bring what it has learned in a former run."""
        return self.former is None or party not in self.former.parties

    def method(self) -> Method:
        """The method, from this installation."""
        method: Method = make_method(self.body["method"]["name"], self.body["method"]["settings"])
        return method

    def training(self) -> Training:
        """How long, in which numbers, with which seed."""
        return build(Training, self.body["training"], "training")

    def model(self) -> ModelSettings:
        """The networks."""
        return build(ModelSettings, self.body["model"], "model")

    def privacy(self) -> PrivacySettings:
        """What is promised to whom."""
        return build(PrivacySettings, self.body["privacy"], "privacy")

    def absence(self) -> Absence:
        """What happens when a party does not answer."""
        return build(Absence, self.body["absence"], "absence")

    def schedule(self) -> Schedule:
        """Who uploads when, about which rows."""
        training = self.training()
        return schedule_of(self.method(), training.schedule, self.train, self.parties, training.seed)

    def schema(self, groups: Sequence[Group], device: torch.device) -> Schema:
        """The frame of the run for one process."""
        training = self.training()
        return Schema(
            parties=self.parties,
            groups=tuple(groups),
            task=find_task(self.body["task"])(int(self.body["outputs"])),
            rows=int(self.body["rows"]),
            train=self.train,
            head=self.model().head,
            seed=training.seed,
            dtype=DTYPES[training.dtype],
            device=device,
            computing=training.computing,
            numbers=training.wire.numbers,
            augment=training.augment,
        )

    def notice(self) -> Notice:
        """The proposal as a message."""
        facts = {"body": dict(self.body), "signature": dict(self.signature)}
        return Notice(self.body["run"], PROPOSED, PROPOSAL, COORDINATOR, facts, {"train": _as_bytes(self.train)})


def propose(
    body: Mapping[str, Any], train: Tensor, key: bytes, credentials: Credentials, number: int = FORMAT
) -> Proposal:
    """Sign a proposal of format `number` and the coordinator's public key; the rows are covered by their digest."""
    full = {"format": number, **body, "key": key.hex(), "train": hashlib.sha256(_as_bytes(train)).hexdigest()}
    plain = json.loads(canonical(full))  # as its readers will see it: lists, not tuples
    return Proposal(plain, train, credentials.sign(canonical(plain)))


def read_proposal(notice: Notice, credentials: Credentials) -> Proposal:
    """Check a proposal that arrived: whose signature, whole, and of a kind this version understands."""
    body, signature, train = notice.facts.get("body"), notice.facts.get("signature"), notice.blobs.get("train")
    if not isinstance(body, dict) or not isinstance(signature, dict) or train is None:
        raise WireError("the proposal lacks its text, its signature or its rows")
    credentials.verify(canonical(body), signature, COORDINATOR)
    if type(body.get("format")) is not int or body["format"] not in READABLE:
        raise WireError(
            f"the proposal has format {body.get('format')!r:.32}, this version joins format {FORMAT} only; all sides "
            "need the same version of Colonnade"
        )
    if body.get("run") != notice.run or hashlib.sha256(train).hexdigest() != body.get("train"):
        raise IdentityError("the proposal's run or training rows are not those that were signed")
    rows = torch.from_numpy(np.frombuffer(train, dtype="<i4").astype(np.int64))
    proposal = Proposal(body, rows, signature)
    _check(proposal)
    return proposal


def _check(proposal: Proposal) -> None:
    """Everything a party will rely on can be read; one sentence if not."""
    body = proposal.body
    try:
        rows, outputs, parties = body["rows"], body["outputs"], body["parties"]
        named = isinstance(parties, list) and all(isinstance(name, str) for name in parties)
        if not named or type(rows) is not int or type(outputs) is not int:
            raise WireError(
                "the proposal does not say as it must how many rows and outputs there are, and which parties"
            )
        if not (0 < rows <= MOST_ROWS and 0 < outputs <= MOST_WIDTH and parties):
            raise WireError(f"the proposal is about {rows} rows, {outputs} outputs and {len(parties)} parties")
        if len(proposal.train) == 0 or int(proposal.train.min()) < 0 or int(proposal.train.max()) >= rows:
            raise WireError(f"the proposal's training rows are not among its {rows} rows")
        if again := len(proposal.train) - len(proposal.train.unique()):
            raise WireError(  # with unit ROW each time is drawn and clipped by itself, and counted as another row
                f"the proposal names training rows more than once, {again:,} times in all; needed each row once"
            )
        proposal.method(), proposal.model(), proposal.training(), find_task(body["task"]), proposal.key
        proposal.privacy(), proposal.absence(), proposal.former
        if not all(isinstance(name, str) and name in parties for name in body.get("own", ())):
            raise WireError("the proposal names a party of the label holder's own that is not among its parties")
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the proposal cannot be read: {error!r}") from None


# -- joining ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A party that agrees: its network, its public key, and the consent it signed."""

    introduction: Introduction
    key: bytes
    consent: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    mask: bytes = b""  # its public key for masks; empty: there are none, or an earlier version masked with `key`


def join(proposal: Proposal, joined: Joined, credentials: Credentials) -> Notice:
    """A party's consent, with what the others need to know of its network."""
    introduction = joined.introduction
    body = {
        "proposal": proposal.digest,
        "party": credentials.name,
        "key": joined.key.hex(),
        "architecture": introduction.architecture,
        "shape": list(introduction.shape),
        "width": introduction.width,
        "parameters": list(introduction.parameters),
        **({"mask": joined.mask.hex()} if joined.mask else {}),
    }
    facts = {"body": body, "signature": credentials.sign(canonical(body))}
    return Notice(proposal.body["run"], PROPOSED, JOIN, credentials.name, facts)


def read_join(notice: Notice, proposal: Proposal, credentials: Credentials | None) -> Joined:
    """Check a party's consent; without credentials, all but the signature, which was checked when it was stored."""
    body, signature = notice.facts.get("body"), notice.facts.get("signature")
    if not isinstance(body, dict) or not isinstance(signature, dict):
        raise WireError(f"the consent of {notice.sender!r} lacks its text or its signature")
    if credentials is not None:
        credentials.verify(canonical(body), signature, notice.sender)
    if body.get("proposal") != proposal.digest or body.get("party") != notice.sender:
        raise WireError(f"the consent of {notice.sender!r} is about another proposal")
    shape, width, architecture = body.get("shape"), body.get("width"), body.get("architecture")
    sizes = body.get("parameters")
    good = all(isinstance(all_, list) and all(type(n) is int and n > 0 for n in all_) for all_ in (shape, sizes))
    good = good and all(n <= MOST_WIDTH for n in shape or ()) and sum(sizes or ()) <= MOST_ROWS
    if not good or type(width) is not int or not 0 < width <= MOST_WIDTH or not isinstance(architecture, str):
        raise WireError(f"{notice.sender!r} describes its network in a way that cannot be read")
    key, mask = _public(body, "key"), _public(body, "mask")
    if len(key) != KEY:
        raise WireError(f"the consent of {notice.sender!r} has no public key")
    if proposal.masks_apart and (len(mask) != KEY or mask == key):
        raise WireError(f"the consent of {notice.sender!r} has no public key for masks that is not its other one")
    network = Introduction(architecture[:64], tuple(shape or ()), width, tuple(sizes or ()))
    return Joined(network, key, dict(notice.facts), mask if proposal.masks_apart else b"")


def _public(body: Mapping[str, Any], name: str) -> bytes:
    """A public key of a consent, or nothing."""
    try:
        return bytes.fromhex(body[name])
    except (KeyError, TypeError, ValueError):
        return b""


# -- agreed -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """A proposal that everybody joined: their networks, their keys, and for each the run's key encrypted."""

    proposal: Proposal
    joined: Mapping[str, Joined]
    secrets: Mapping[str, str] = field(repr=False)
    signature: Mapping[str, Any] = field(repr=False)

    @property
    def introductions(self) -> dict[str, Introduction]:
        """The parties' networks, in federation order."""
        return {party: joined.introduction for party, joined in self.joined.items()}

    @property
    def groups(self) -> tuple[Group, ...]:
        """Parties that share an architecture."""
        return form_groups(self.introductions)

    def schema(self, device: torch.device) -> Schema:
        """The frame of the run for one process."""
        return self.proposal.schema(self.groups, device)

    def adders(self, pairs: Mapping[str, KeyPair]) -> Adders | None:
        """Who adds in a secure sum, with keys that each signed for itself; None, where uploads are read one by one."""
        privacy = self.proposal.privacy()
        if not privacy.secure_sum.use:
            return None
        publics = {party: joined.mask or joined.key for party, joined in self.joined.items()}
        return Adders(Roster.of(self.proposal.digest, publics), privacy, pairs)

    def notice(self) -> Notice:
        """The agreement as a message; the proposal is in it, for a party that joined and was then started again."""
        proposed = self.proposal.notice()
        body = settlement(self.proposal, self.joined, self.secrets)
        facts = {"body": body, "signature": dict(self.signature), "proposal": dict(proposed.facts)}
        return Notice(proposed.run, SETTLED, AGREED, COORDINATOR, facts, proposed.blobs)

    def to_json(self) -> dict[str, object]:
        """Plain values, for a store."""
        return {
            "proposal": dict(self.proposal.body),
            "proposal_signature": dict(self.proposal.signature),
            "train": self.proposal.train.tolist(),
            "settlement": settlement(self.proposal, self.joined, self.secrets),
            "settlement_signature": dict(self.signature),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Agreement:
        """The inverse of `to_json`: from one's own store, checked when it was written."""
        train = torch.tensor(values["train"], dtype=torch.int64)
        proposal = Proposal(values["proposal"], train, values["proposal_signature"])
        joined, secrets = _settled(values["settlement"], proposal, None)
        return cls(proposal, joined, secrets, values["settlement_signature"])


def settlement(proposal: Proposal, joined: Mapping[str, Joined], secrets: Mapping[str, str]) -> dict[str, object]:
    """What the coordinator signs when all have joined."""
    parties = [{"name": p, "consent": dict(who.consent), "secret": secrets[p]} for p, who in joined.items()]
    return {"proposal": proposal.digest, "parties": parties}


def settle(
    proposal: Proposal, joined: Mapping[str, Joined], secrets: Mapping[str, str], credentials: Credentials
) -> Agreement:
    """Sign what follows from everybody's consent, in federation order."""
    ordered = {party: joined[party] for party in proposal.parties}
    return Agreement(proposal, ordered, secrets, credentials.sign(canonical(settlement(proposal, ordered, secrets))))


def read_agreement(notice: Notice, proposal: Proposal, mine: Joined, credentials: Credentials) -> Agreement:
    """Check the agreement that arrived against the proposal this party joined and its own facts."""
    body, signature = notice.facts.get("body"), notice.facts.get("signature")
    if not isinstance(body, dict) or not isinstance(signature, dict):
        raise WireError("the agreement lacks its text or its signature")
    credentials.verify(canonical(body), signature, COORDINATOR)
    if body.get("proposal") != proposal.digest:
        raise WireError("the agreement is about another proposal than the one this party joined")
    try:
        joined, secrets = _settled(body, proposal, credentials)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the agreement cannot be read: {error!r}") from None
    if tuple(joined) != proposal.parties or joined.get(credentials.name) != mine:
        raise WireError("the agreement names other parties, or another network of this one, than were proposed")
    return Agreement(proposal, joined, secrets, signature)


def proposal_within(notice: Notice) -> Notice:
    """The proposal that came with an agreement, as the notice it was; not checked yet."""
    facts = notice.facts.get("proposal")
    if not isinstance(facts, dict):
        raise WireError("the agreement lacks its proposal")
    return Notice(notice.run, PROPOSED, PROPOSAL, notice.sender, facts, notice.blobs)


def _settled(
    body: Mapping[str, Any], proposal: Proposal, credentials: Credentials | None
) -> tuple[dict[str, Joined], dict[str, str]]:
    """Everybody's consent, each checked by its signer's certificate; not again, if from one's own store."""
    joined, secrets = {}, {}
    for p in body["parties"]:
        name = str(p["name"])
        consent = Notice(proposal.body["run"], PROPOSED, JOIN, name, dict(p["consent"]))
        joined[name] = read_join(consent, proposal, credentials)
        secrets[name] = str(p["secret"])
    return joined, secrets


def refusal(run: str, number: int, sender: str, error: ColonnadeError | str) -> Notice:
    """Tell the coordinator why not."""
    return Notice(run, number, "REFUSED", sender, {"reason": " ".join(str(error).split())[:500]})


def _as_bytes(rows: Tensor) -> bytes:
    return rows.to(torch.int32).numpy().astype("<i4").tobytes()
