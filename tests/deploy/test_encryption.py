"""Sealed messages of a run: who can read them, and whose they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.deploy.encryption import RunEncryption, encryption_of_coordinator, encryption_of_party, secrets_for
from colonnade.engines.message import EVERYONE, Incoming
from colonnade.errors import IdentityError
from colonnade.identity.certificates import make_trial
from colonnade.identity.cipher import KeyPair
from colonnade.identity.credentials import Connection, Credentials
from colonnade.wire.messages import COORDINATOR

SUBJECT, RUN = "colonnade.run.all", "0" * 64
PARTIES = ("bank", "telco")


def load(folder: Path, name: str) -> Credentials:
    files = {"certificate": folder / f"{name}.crt", "key": folder / f"{name}.key", "authority": folder / "ca.crt"}
    return Credentials.load(Connection(server="tls://localhost:4222", **files))


@pytest.fixture(scope="module")
def encryption(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunEncryption]:
    """Everybody's envelopes of one run, from real certificates."""
    folder = tmp_path_factory.mktemp("identity") / "certs"
    make_trial(folder, PARTIES)
    keys = {name: KeyPair.new() for name in (COORDINATOR, *PARTIES)}
    publics, mine = {p: keys[p].public for p in PARTIES}, keys[COORDINATOR]
    secrets = secrets_for(mine, publics, RUN)
    made = {
        p: encryption_of_party(load(folder, p), keys[p], mine.public, bytes.fromhex(secrets[p]), RUN) for p in PARTIES
    }
    return made | {COORDINATOR: encryption_of_coordinator(load(folder, COORDINATOR), mine, publics, RUN)}


def test_every_party_reads_what_the_coordinator_says_to_all(encryption: dict[str, RunEncryption]) -> None:
    encrypted = encryption[COORDINATOR].encrypt(EVERYONE, SUBJECT, 7, b"a request")
    for party in PARTIES:
        incoming = encryption[party].decrypt(Incoming(SUBJECT, encrypted))
        assert (incoming.data, incoming.number, incoming.encrypted) == (b"a request", 7, True)


def test_a_party_cannot_send_for_the_coordinator(encryption: dict[str, RunEncryption]) -> None:
    """It has the run's key, and with the server's operator it could publish on the subject of all."""
    forged = encryption["telco"].encrypt(EVERYONE, SUBJECT, 7, b"an order that telco made up")
    with pytest.raises(IdentityError, match="belongs to 'telco'; only 'coordinator' may sign this"):
        encryption["bank"].decrypt(Incoming(SUBJECT, forged))


def test_nor_without_a_signature_or_under_one_of_another_message(encryption: dict[str, RunEncryption]) -> None:
    mallory = encryption["telco"].ciphers[EVERYONE]
    start = encryption[COORDINATOR].encrypt(EVERYONE, SUBJECT, 7, b"")[:16]
    bare = start + mallory.encrypt(b"an order that telco made up", start + SUBJECT.encode())
    with pytest.raises(IdentityError, match="a message to all that is not signed"):
        encryption["bank"].decrypt(Incoming(SUBJECT, bare))
    real = encryption[COORDINATOR].encrypt(EVERYONE, SUBJECT, 7, b"a request")
    content = mallory.decrypt(real[16:], real[:16] + SUBJECT.encode())
    assert content.endswith(b"a request")
    for number, text, subject in (
        (7, b"another!", SUBJECT),
        (8, b"a request", SUBJECT),
        (7, b"a request", "other.all"),
    ):
        start = encryption[COORDINATOR].encrypt(EVERYONE, subject, number, b"")[:16]
        moved = start + mallory.encrypt(content[: -len(b"a request")] + text, start + subject.encode())
        with pytest.raises(IdentityError, match="the signature of 'coordinator' does not hold"):
            encryption["bank"].decrypt(Incoming(subject, moved))


def test_nor_with_what_was_signed_in_another_run(encryption: dict[str, RunEncryption]) -> None:
    """The same words under the same number in another run of the same coordinator."""
    other = replace(encryption[COORDINATOR], proposal="1" * 64)
    with pytest.raises(IdentityError, match="the signature of 'coordinator' does not hold"):
        encryption["bank"].decrypt(Incoming(SUBJECT, other.encrypt(EVERYONE, SUBJECT, 7, b"a request")))
