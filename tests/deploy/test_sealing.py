"""Sealed messages of a run: who can read them, and whose they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.deploy.sealing import RunSeals, seals_of_coordinator, seals_of_party, secrets_for
from colonnade.engines.post import EVERYONE, Letter
from colonnade.errors import IdentityError
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.identity.envelope import KeyPair
from colonnade.wire.messages import COORDINATOR

SUBJECT, RUN = "colonnade.run.all", "0" * 64
PARTIES = ("bank", "telco")


def load(folder: Path, name: str) -> Credentials:
    files = {"certificate": folder / f"{name}.crt", "key": folder / f"{name}.key", "authority": folder / "ca.crt"}
    return Credentials.load(Connection(server="tls://localhost:4222", **files))


@pytest.fixture(scope="module")
def seals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunSeals]:
    """Everybody's envelopes of one run, from real certificates."""
    folder = tmp_path_factory.mktemp("identity") / "certs"
    make_trial(folder, PARTIES)
    keys = {name: KeyPair.new() for name in (COORDINATOR, *PARTIES)}
    publics, mine = {p: keys[p].public for p in PARTIES}, keys[COORDINATOR]
    secrets = secrets_for(mine, publics, RUN)
    made = {p: seals_of_party(load(folder, p), keys[p], mine.public, bytes.fromhex(secrets[p]), RUN) for p in PARTIES}
    return made | {COORDINATOR: seals_of_coordinator(load(folder, COORDINATOR), mine, publics, RUN)}


def test_every_party_reads_what_the_coordinator_says_to_all(seals: dict[str, RunSeals]) -> None:
    sealed = seals[COORDINATOR].seal(EVERYONE, SUBJECT, 7, b"an order")
    for party in PARTIES:
        letter = seals[party].open(Letter(SUBJECT, sealed))
        assert (letter.data, letter.number, letter.sealed) == (b"an order", 7, True)


def test_a_party_cannot_speak_for_the_coordinator(seals: dict[str, RunSeals]) -> None:
    """It has the run's key, and with the server's operator it could publish on the subject of all."""
    forged = seals["telco"].seal(EVERYONE, SUBJECT, 7, b"an order that telco made up")
    with pytest.raises(IdentityError, match="belongs to 'telco'; only 'coordinator' may sign this"):
        seals["bank"].open(Letter(SUBJECT, forged))


def test_nor_without_a_signature_or_under_one_of_another_message(seals: dict[str, RunSeals]) -> None:
    mallory = seals["telco"].envelopes[EVERYONE]
    start = seals[COORDINATOR].seal(EVERYONE, SUBJECT, 7, b"")[:16]
    bare = start + mallory.seal(b"an order that telco made up", start + SUBJECT.encode())
    with pytest.raises(IdentityError, match="a message to all that is not signed"):
        seals["bank"].open(Letter(SUBJECT, bare))
    real = seals[COORDINATOR].seal(EVERYONE, SUBJECT, 7, b"an order")
    content = mallory.open(real[16:], real[:16] + SUBJECT.encode())
    assert content.endswith(b"an order")
    for number, text, subject in ((7, b"another!", SUBJECT), (8, b"an order", SUBJECT), (7, b"an order", "other.all")):
        start = seals[COORDINATOR].seal(EVERYONE, subject, number, b"")[:16]
        moved = start + mallory.seal(content[: -len(b"an order")] + text, start + subject.encode())
        with pytest.raises(IdentityError, match="the signature of 'coordinator' does not hold"):
            seals["bank"].open(Letter(subject, moved))


def test_nor_with_what_was_signed_in_another_run(seals: dict[str, RunSeals]) -> None:
    """The same words under the same number in another run of the same coordinator."""
    other = replace(seals[COORDINATOR], proposal="1" * 64)
    with pytest.raises(IdentityError, match="the signature of 'coordinator' does not hold"):
        seals["bank"].open(Letter(SUBJECT, other.seal(EVERYONE, SUBJECT, 7, b"an order")))
