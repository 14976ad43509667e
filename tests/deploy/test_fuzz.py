"""Bytes that somebody made up, and messages with anything anywhere: never an unexpected error, never a half-done thing.

The link is a stand-in here, so that thousands of messages take seconds; everything behind it is real.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from colonnade.deploy.agreement import (
    JOIN,
    PROPOSED,
    Agreement,
    Proposal,
    canonical,
    propose,
    read_join,
    read_proposal,
    settle,
)
from colonnade.deploy.budget import ledger_beside
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.encryption import MARK, RunEncryption, encryption_of_coordinator, secrets_for
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.engines.message import Incoming, Outgoing
from colonnade.engines.remote import Remote, RoundInProgress
from colonnade.errors import Diverged, IdentityError, Refused, RunError, WireError
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.wire.codec import decode
from colonnade.wire.messages import COORDINATOR, Purpose, Query, Request
from colonnade.wire.notice import read_notice
from tests.deploy.lies import Truth, as_message
from tests.deploy.trials import DATA, METHOD, MODEL, RUN, TRAINING, FaultyTrial, digest_of

PARTY = "party_1"
QUICK = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class StandIn:
    """A link that leads nowhere and remembers what it was given."""

    me: str
    run: str = RUN
    encryption: Any = None
    sent: list[Outgoing] = field(default_factory=list)
    closed: list[Incoming] = field(default_factory=list)  # acknowledged, refused or forgotten
    came_back: threading.Event = field(default_factory=threading.Event)

    def send(self, *to_send: Outgoing, again: bool = False, answers: Iterable[Incoming] = ()) -> None:
        self.sent += to_send
        self.closed += answers

    def done(self, received: Any) -> None:
        self.closed += received

    def refuse(self, incoming: Incoming) -> None:
        self.closed.append(incoming)

    forget = refuse


@dataclass(repr=False)
class Scene:
    """A party that has agreed and is about to be told request 1; and the coordinator that waits for its answer."""

    folder: Path
    trial: FaultyTrial
    party: PartyProcess
    link: StandIn
    coordinator: CoordinatorProcess
    remote: Remote
    now: RoundInProgress
    down: bytes  # the request
    up: bytes  # the right answer
    proposal: Any
    agreed: Agreement

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("the scene")  # hypothesis would show all of it

    def reopen(self) -> None:
        """The party as it was before the request."""
        self.party.store.close()
        shutil.rmtree(self.folder / "party")
        shutil.copytree(self.folder / "agreed", self.folder / "party")
        shutil.copy(ledger_beside(self.folder / "agreed"), ledger_beside(self.folder / "party"))
        self.party = PartyProcess(
            self.folder / "party", self.link, self.party.member.credentials, setup(self.trial), quiet
        )  # type: ignore[arg-type]

    def committed(self) -> tuple[Any, ...]:
        saved = self.party.store.snapshot()
        assert saved is not None and self.party.side is not None
        return saved.facts, digest_of(saved.tensors), [r.digest for r in saved.ledger]

    def in_memory(self) -> tuple[Any, ...]:
        assert self.party.side is not None
        return self.party.number, digest_of(self.party.side.tensors()), len(self.party.ledger), self.party.finished


def quiet(event: str, **facts: Any) -> None:
    json.dumps(facts)  # whatever is said can be written to a log


def setup(trial: FaultyTrial) -> PartySetup:
    return trial.setup(PARTY)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("fuzz")
    make_trial(folder / "certs", (PARTY,))
    own = {name: credentials(folder / "certs", name) for name in (PARTY, COORDINATOR)}
    trial = FaultyTrial(folder, RUN, {}, DATA, METHOD, MODEL, TRAINING, noise=0.05)
    for name in ("party", "coordinator"):
        (folder / name).mkdir()
    link, other = StandIn(PARTY), StandIn(COORDINATOR)
    party = PartyProcess(folder / "party", link, own[PARTY], setup(trial), quiet)  # type: ignore[arg-type]
    undertaking = replace(trial.undertaking(), parties=(PARTY,))
    coordinator = CoordinatorProcess(folder / "coordinator", other, own[COORDINATOR], undertaking, quiet)  # type: ignore[arg-type]

    proposal = propose(undertaking.body(RUN), undertaking.split.train, coordinator.keys.public, own[COORDINATOR])
    party.handle(incoming(proposal.notice().payload))
    joined = read_join(read_notice(link.sent.pop().message.payload), proposal, own[COORDINATOR])
    secrets = secrets_for(coordinator.keys, {PARTY: joined.key}, proposal.digest)
    agreement = settle(proposal, {PARTY: joined}, secrets, own[COORDINATOR])
    party.handle(incoming(agreement.notice().payload))
    shutil.copytree(folder / "party", folder / "agreed")
    shutil.copy(ledger_beside(folder / "party"), ledger_beside(folder / "agreed"))

    order, down = coordinator._trainer(agreement).coordinator.request()
    party.handle(incoming(down.everyone.payload, encrypted=True))
    up = link.sent[-1].message.payload
    remote = coordinator._trainer(agreement).engine
    assert isinstance(remote, Remote)
    now = RoundInProgress(order, down, {PARTY: {0}}, {PARTY})
    made = Scene(folder, trial, party, link, coordinator, remote, now, down.everyone.payload, up, proposal, agreement)
    made.reopen()
    yield made
    made.party.store.close()
    coordinator.store.close()


def credentials(certs: Path, name: str) -> Credentials:
    files = {"certificate": certs / f"{name}.crt", "key": certs / f"{name}.key"}
    return Credentials.load(Connection(server="tls://localhost:1", authority=certs / "ca.crt", **files))


def incoming(data: bytes, encrypted: bool = False, up: bool = False) -> Incoming:
    return Incoming(f"run.{RUN}.up.{PARTY}" if up else f"run.{RUN}.all", data, None, encrypted, 1)


# -- what is made up ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """One change of a message; most changes hit the header."""

    what: str
    where: float
    in_header: bool
    value: bytes

    def do(self, data: bytes, header: int) -> bytes:
        at = int(self.where * min(len(data), header if self.in_header else len(data)))
        before, after = data[:at], data[at:]
        if self.what == "flip" and after:
            return before + bytes([after[0] ^ (1 << self.value[0] % 8)]) + after[1:]
        if self.what == "cut":
            return before
        return before + (self.value if self.what == "insert" else b"") + after[self.value[0] % 16 :]


DAMAGES = st.lists(
    st.builds(
        Damage,
        st.sampled_from(["flip", "flip", "cut", "drop", "insert"]),
        st.floats(0, 1, exclude_max=True),
        st.booleans(),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=4,
)


def damaged(payload: bytes, damages: list[Damage]) -> bytes:
    header = 8 + int.from_bytes(payload[:8], "little")
    for damage in damages:
        payload = damage.do(payload, header)
    return payload


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["*", PARTY, "TRAIN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "version",
    "run",
    "number",
    "kind",
    "sender",
    "asks",
    "learners",
    "steps",
    "keep",
    "stop",
    "own",
    "to",
    "part",
    "facts",
]
HEADERS = st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3)
ARRAYS = st.dictionaries(
    st.sampled_from(["rows.0", "rows.1", "common.total", "common.heads", "h", "x"]),
    st.builds(
        lambda shape, kind: torch.ones(shape, dtype=kind),
        st.lists(st.integers(0, 4), max_size=3),
        st.sampled_from([torch.float64, torch.float32, torch.int32, torch.int64, torch.uint8]),
    ),
    max_size=2,
)


def tell(scene: Scene, told: Incoming) -> None:
    """The party takes it; nothing, or one whole round, is the result."""
    before, inside = scene.committed(), scene.in_memory()
    over = scene.party.handle(told)
    if scene.committed() == before and not over:
        assert scene.in_memory() == inside
        return
    assert told.encrypted, "a message without a encrypt changed something"
    assert over or scene.party.number > before[0]["number"]
    assert scene.committed()[0]["number"] == scene.party.number
    scene.reopen()


@QUICK
@given(data=st.binary(max_size=400), encrypted=st.booleans())
@example(data=MARK + bytes(8), encrypted=False)
@example(data=b"", encrypted=True)
def test_a_party_survives_any_bytes(scene: Scene, data: bytes, encrypted: bool) -> None:
    tell(scene, incoming(data, encrypted))


@QUICK
@given(damages=DAMAGES, encrypted=st.booleans())
def test_a_party_survives_damaged_requests(scene: Scene, damages: list[Damage], encrypted: bool) -> None:
    tell(scene, incoming(damaged(scene.down, damages), encrypted))


@QUICK
@given(changes=HEADERS, arrays=ARRAYS, encrypted=st.booleans())
@example(changes={"number": 2**40}, arrays={}, encrypted=True)
@example(changes={"number": -(10**9)}, arrays={}, encrypted=True)
@example(changes={"steps": [[PARTY, 10**12]], "learners": "*"}, arrays={}, encrypted=True)
def test_a_party_survives_requests_with_anything_in_them(
    scene: Scene, changes: dict[str, Any], arrays: dict[str, Any], encrypted: bool
) -> None:
    truth = Truth.of(scene.down)
    tell(scene, incoming(as_message({**truth.header, **changes}, {**truth.arrays, **arrays}), encrypted))


BODY = [
    "format",
    "run",
    "parties",
    "method",
    "model",
    "training",
    "rows",
    "task",
    "outputs",
    "label_exposure",
    "purposes",
]
MORE = ["mechanism", "absence", "alignment", "key", "train"]


@QUICK
@given(changes=st.dictionaries(st.sampled_from([*BODY, *MORE]), JSON, min_size=1, max_size=2))
@example(changes={"parties": 5})
@example(changes={"rows": True})
@example(changes={"absence": None})
@example(changes={"absence": {}})
@example(changes={"model": {"hidden": 10**12}})
@example(changes={"model": {"hidden": 10**30}})
@example(changes={"purposes": [[1]]})
@example(changes={"purposes": None})
@example(changes={"mechanism": []})
@example(changes={"mechanism": None})
@example(changes={"method": {"name": ["vimadmm"], "settings": 5}})
@example(changes={"key": "00"})
@example(changes={"training": {"rounds": 10**30, "seed": 10**40}})
@example(changes={"training": {"seed": -1}})
@example(changes={"rows": 2**31 - 1})
@example(changes={"outputs": 2**20})
def test_a_party_survives_proposals_with_anything_in_them(
    scene: Scene, changes: dict[str, Any], tmp_path: Path
) -> None:
    """All of them signed: the coordinator may be as confused as it likes."""
    signer = scene.coordinator.credentials
    try:
        body = {**scene.proposal.body, **changes}
        wrong = replace(scene.proposal, body=body, signature=signer.sign(canonical(body)))
    except WireError:  # a number that is none: it cannot be signed
        return
    party = scene.party
    agreed, party.member.agreement = party.member.agreement, None  # as if it had not agreed yet
    try:
        party.handle(incoming(as_message({"version": 1, **_header(wrong)}, {"train": _bytes(wrong.train)})))
    finally:
        party.member.adopt(agreed)  # type: ignore[arg-type]


@QUICK
@given(changes=st.dictionaries(st.sampled_from(["proposal", "parties"]), JSON, min_size=1))
@example(changes={"parties": [{"name": PARTY}]})
@example(changes={"parties": [{"name": PARTY, "architecture": "", "shape": 5, "width": 1, "key": "", "secret": ""}]})
def test_a_party_survives_agreements_with_anything_in_them(scene: Scene, changes: dict[str, Any]) -> None:
    notice, party = scene.agreed.notice(), scene.party
    try:
        body = {**notice.facts["body"], **changes}
        facts = {**notice.facts, "body": body, "signature": scene.coordinator.credentials.sign(canonical(body))}
    except WireError:
        return
    was, party.member.agreement = party.member.agreement, None
    try:
        before = scene.committed()
        party.handle(incoming(replace(notice, facts=facts).payload))
        assert scene.committed() == before
    finally:
        party.member.adopt(was)  # type: ignore[arg-type]


def _header(proposal: Any) -> dict[str, Any]:
    notice = {"run": RUN, "number": -1, "kind": "PROPOSAL", "sender": COORDINATOR}
    return {**notice, "facts": {"body": proposal.body, "signature": proposal.signature}}


def _bytes(rows: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(rows.to(torch.int32).numpy().tobytes()), dtype=torch.uint8)


# -- the coordinator ------------------------------------------------------------------------------


def answer(scene: Scene, told: Incoming) -> None:
    """The coordinator takes it; it counts only if it is exactly what was asked for."""
    try:
        scene.remote._take(scene.now, told)
    except (Refused, Diverged, RunError):  # a party that says so in the right form is believed
        assert told.encrypted or Truth.of(told.data).header["kind"] == "REFUSED"
    for (party, part), arrived in scene.now.came.items():
        assert told.encrypted and (party, part) == (PARTY, 0)
        assert {k: (tuple(v.shape), v.dtype) for k, v in arrived.arrays.items()} == {"h": ((20, 4), torch.float64)}
        assert bool(torch.isfinite(arrived.arrays["h"]).all())
    assert scene.now.late == [] and scene.remote.away == set()
    scene.now.came.clear()


def test_the_right_answer_counts(scene: Scene) -> None:
    scene.remote._take(scene.now, incoming(scene.up, encrypted=True, up=True))
    assert list(scene.now.came) == [(PARTY, 0)]
    scene.now.came.clear()


@QUICK
@given(data=st.binary(max_size=400), encrypted=st.booleans())
def test_the_coordinator_survives_any_bytes(scene: Scene, data: bytes, encrypted: bool) -> None:
    answer(scene, incoming(data, encrypted, up=True))


@QUICK
@given(damages=DAMAGES, encrypted=st.booleans())
def test_the_coordinator_survives_damaged_answers(scene: Scene, damages: list[Damage], encrypted: bool) -> None:
    answer(scene, incoming(damaged(scene.up, damages), encrypted, up=True))


@QUICK
@given(changes=HEADERS, arrays=ARRAYS, encrypted=st.booleans())
@example(changes={"kind": "REFUSED", "facts": [1]}, arrays={}, encrypted=False)
@example(changes={"kind": "REFUSED", "facts": {"reason": {}}}, arrays={}, encrypted=True)
@example(changes={"kind": "DIVERGED"}, arrays={}, encrypted=True)
@example(changes={"kind": "DONE"}, arrays={}, encrypted=True)
@example(changes={"part": 10**40}, arrays={}, encrypted=True)
def test_the_coordinator_survives_answers_with_anything_in_them(
    scene: Scene, changes: dict[str, Any], arrays: dict[str, Any], encrypted: bool
) -> None:
    truth = Truth.of(scene.up)
    answer(scene, incoming(as_message({**truth.header, **changes}, {**truth.arrays, **arrays}), encrypted, up=True))


CONSENT = st.dictionaries(
    st.sampled_from(["proposal", "party", "key", "architecture", "shape", "width"]), JSON, min_size=1
)


@QUICK
@given(changes=CONSENT, header=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=1))
@example(changes={"shape": [True]}, header={})
@example(changes={"key": "00"}, header={})
def test_the_coordinator_survives_consents_with_anything_in_them(
    scene: Scene, changes: dict[str, Any], header: dict[str, Any]
) -> None:
    """Signed by the party they come from."""
    party = scene.party.member
    consent = Truth.of(party.consider(scene.proposal).payload)
    try:
        body = {**consent.header["facts"]["body"], **changes}
        facts = {"body": body, "signature": party.credentials.sign(canonical(body))}
    except WireError:
        return
    told = incoming(as_message({**consent.header, "facts": facts, **header}, {}), up=True)
    try:
        heard = scene.coordinator._read(told, PROPOSED, JOIN)
        joined = read_join(heard, scene.proposal, scene.coordinator.credentials) if heard else None
    except (WireError, IdentityError, Refused):
        return
    assert joined is None or len(joined.key) == 32


@QUICK
@given(data=st.binary(max_size=200), number=st.integers(-(2**63), 2**63 - 1), where=st.floats(0, 1, exclude_max=True))
@example(data=MARK, number=0, where=0.0)
def test_a_message_is_decrypted_whole_or_not_at_all(scene: Scene, data: bytes, number: int, where: float) -> None:
    keys, mine = scene.coordinator.keys, scene.party.member.keys
    encryption = encryption_of_coordinator(
        scene.coordinator.credentials, keys, {PARTY: mine.public}, scene.proposal.digest
    )
    theirs = scene.party.member.encryption(scene.agreed)
    subject = f"run.{RUN}.up.{PARTY}"
    encrypted = theirs.encrypt(COORDINATOR, subject, number, data)
    assert encryption.decrypt(Incoming(subject, encrypted)) == Incoming(subject, data, None, True, number)
    at = int(where * len(encrypted))
    opens(encryption, Incoming(subject, encrypted[:at] + bytes([encrypted[at] ^ 1]) + encrypted[at + 1 :]))
    opens(encryption, Incoming(subject, data))
    opens(encryption, Incoming(subject.replace(PARTY, "party_0"), encrypted))


def opens(encryption: RunEncryption, told: Incoming) -> None:
    """It does not: refused, or left as it came, which its reader refuses."""
    with contextlib.suppress(IdentityError):
        assert not encryption.decrypt(told).encrypted


# -- formats of a proposal ------------------------------------------------------------------------


def proposed(scene: Scene, number: int) -> Proposal:
    u, keys = scene.coordinator.undertaking, scene.coordinator.keys
    return propose(u.body(RUN), u.split.train, keys.public, scene.coordinator.credentials, number)


@pytest.mark.parametrize(("number", "short"), [(2, False), (3, True), (4, True)])
def test_requests_are_written_as_the_agreement_reads_them(scene: Scene, number: int, short: bool) -> None:
    """Format 2 is of versions that need every row by its number; whoever agreed on it is told so."""
    read = proposed(scene, number)  # as a store has it: a run that began with it goes on
    assert read.short_rows is short
    side = scene.coordinator._trainer(replace(scene.agreed, proposal=read)).coordinator
    _, arrays = decode(side.test_request(torch.arange(side.schema.rows))[1].everyone.payload)
    assert set(arrays) == {"bits.0"}
    train = side.schema.train.sort().values
    request = Request(1, (Query(Purpose.TRAIN, (PARTY,), train),))
    _, arrays = decode(side.gate.release(request, {}, ()).everyone.payload)
    assert bool(arrays) is not short


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_proposals_of_other_formats_are_refused(scene: Scene, number: int) -> None:
    notice = read_notice(proposed(scene, number).notice().payload)
    with pytest.raises(WireError, match=rf"format {number}, this version joins format 4 only"):
        read_proposal(notice, scene.coordinator.credentials)
