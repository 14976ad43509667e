"""Credentials: what is loaded is checked, what is signed holds, and nothing else does."""

from __future__ import annotations

import base64
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from colonnade.config import build
from colonnade.errors import ConfigError, IdentityError
from colonnade.identity import chain, credentials
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire import messages
from tests.identity.issuing import Issued, authority, issue, placed

TEXT = b"the description of a run"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "certs"
    make_trial(folder, ["first", "second"])
    return folder


def connection(folder: Path, name: str) -> Connection:
    return Connection(
        server="tls://localhost:4222",
        authority=folder / "ca.crt",
        certificate=folder / f"{name}.crt",
        key=folder / f"{name}.key",
    )


@pytest.fixture(scope="module")
def first(trial: Path) -> Credentials:
    return Credentials.load(connection(trial, "first"))


@pytest.fixture(scope="module")
def coordinator(trial: Path) -> Credentials:
    return Credentials.load(connection(trial, "coordinator"))


def test_the_coordinator_has_one_name() -> None:
    assert COORDINATOR == messages.COORDINATOR


@pytest.mark.parametrize("server", ["nats://h:1", "h:1", "tls://h", "tls://user@h:1", "tls://h:1/x", "tls://h: 1"])
def test_an_address_without_tls_or_port_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match=r"\[connection\] server"):
        build(Connection, {"server": server, "authority": "a", "certificate": "b", "key": "c"}, "connection")


def test_the_name_is_the_certificates_and_the_key_is_not_shown(first: Credentials) -> None:
    assert first.name == "first"
    assert "_key" not in repr(first)


# -- loading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["authority", "certificate", "key"])
def test_a_missing_or_damaged_file_is_named(which: str, trial: Path, tmp_path: Path) -> None:
    told = connection(trial, "first")
    gone = told.model_copy(update={which: tmp_path / "gone.pem"})
    with pytest.raises(ConfigError, match=r"gone\.pem.*does not exist"):
        Credentials.load(gone)
    for content in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff\x00"):
        (tmp_path / "damaged.pem").write_bytes(content)
        with pytest.raises(ConfigError, match=r"damaged\.pem.*not a usable"):
            Credentials.load(told.model_copy(update={which: tmp_path / "damaged.pem"}))
    with pytest.raises(ConfigError, match="cannot be read"):
        Credentials.load(told.model_copy(update={which: tmp_path}))


def test_another_key_is_refused(trial: Path) -> None:
    told = connection(trial, "first").model_copy(update={"key": trial / "second.key"})
    with pytest.raises(IdentityError, match=r"second\.key.*does not fit"):
        Credentials.load(told)


def test_a_locked_key_is_refused_without_asking(tmp_path: Path) -> None:
    ca = authority()
    own = issue("first", by=ca)
    form, lock = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    locked = own.key.private_bytes(serialization.Encoding.PEM, form, lock)
    with pytest.raises(ConfigError, match="password"):
        Credentials.load(placed(tmp_path, ca, own, locked))


def test_dates_are_told(tmp_path: Path) -> None:
    ca = authority(days=(-30, 30))
    with pytest.raises(IdentityError, match=r"expired on \d{4}-\d\d-\d\d"):
        Credentials.load(placed(tmp_path, ca, issue("first", by=ca, days=(-5, -1))))
    with pytest.raises(IdentityError, match=r"valid only from \d{4}-\d\d-\d\d"):
        Credentials.load(placed(tmp_path, ca, issue("first", by=ca, days=(1, 5))))


@pytest.mark.parametrize("names", [(), ("first", "second")])
def test_one_common_name(names: tuple[str, ...], tmp_path: Path) -> None:
    ca = authority()
    with pytest.raises(IdentityError, match="common names"):
        Credentials.load(placed(tmp_path, ca, issue(*names, by=ca)))


def _foreign() -> tuple[Issued, Issued]:
    return authority("an authority"), issue("first", by=authority("an authority"))


def _self_signed() -> tuple[Issued, Issued]:
    return authority(), issue("first")


def _by_a_leaf() -> tuple[Issued, Issued]:
    ca = authority()
    leaf = issue("second", by=ca, extensions=(x509.BasicConstraints(ca=False, path_length=None),))
    own = issue("first", by=leaf)
    return ca, Issued(own.certificate, own.key, [leaf.certificate])


def _by_a_plain_leaf() -> tuple[Issued, Issued]:
    ca = authority()
    leaf = issue("second", by=ca)  # without any extension
    own = issue("first", by=leaf)
    return ca, Issued(own.certificate, own.key, [leaf.certificate])


def _too_far_down() -> tuple[Issued, Issued]:
    ca = issue("an authority", extensions=(x509.BasicConstraints(ca=True, path_length=0),))
    between = authority("between", by=ca)
    own = issue("first", by=between)
    return ca, Issued(own.certificate, own.key, [between.certificate])


def _authority_itself() -> tuple[Issued, Issued]:
    ca = authority("first")
    return ca, ca


def _server_only() -> tuple[Issued, Issued]:
    ca = authority()
    return ca, issue("first", by=ca, extensions=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),))


def _authority_expired() -> tuple[Issued, Issued]:
    ca = authority(days=(-9, -1))
    return ca, issue("first", by=ca)


def _weak_key() -> tuple[Issued, Issued]:
    ca = authority()
    return ca, issue("first", by=ca, key=rsa.generate_private_key(65537, 1024))


@pytest.mark.parametrize(
    "case",
    [
        _foreign,
        _self_signed,
        _by_a_leaf,
        _by_a_plain_leaf,
        _too_far_down,
        _authority_itself,
        _server_only,
        _authority_expired,
        _weak_key,
    ],
)
def test_what_the_authority_does_not_vouch_for_is_refused(case: Any, tmp_path: Path, first: Credentials) -> None:
    ca, own = case()
    with pytest.raises(IdentityError, match="not one of the authority's client certificates") as refusal:
        Credentials.load(placed(tmp_path, ca, own))
    assert "\n" not in str(refusal.value)
    assert "ValueError" not in str(refusal.value)


def test_an_authority_in_between_is_carried_along(tmp_path: Path) -> None:
    ca = authority()
    between = authority("between", by=ca)
    own = issue("first", by=between)
    chained = Issued(own.certificate, own.key, [between.certificate])
    loaded = Credentials.load(placed(tmp_path / "a", ca, chained))
    other = Credentials.load(placed(tmp_path / "b", ca, issue("second", by=ca)))
    other.verify(TEXT, loaded.sign(TEXT), "first")
    loaded.tls()


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)], ids=["P-384", "RSA"]
)
def test_an_organisations_own_kind_of_key_works(key: Any, tmp_path: Path) -> None:
    ca = authority(key=key)
    told = placed(tmp_path, ca, issue("first", by=ca, key=key))
    loaded = Credentials.load(told)
    loaded.verify(TEXT, loaded.sign(TEXT), "first")
    loaded.tls()


def test_a_kind_of_key_that_the_verifier_does_not_take_is_refused_in_words(tmp_path: Path) -> None:
    ca = authority()
    own = issue("first", by=ca, key=ed25519.Ed25519PrivateKey.generate())
    try:
        loaded = Credentials.load(placed(tmp_path, ca, own))
    except IdentityError as error:
        assert "not one of the authority's client certificates" in str(error)
    else:
        loaded.verify(TEXT, loaded.sign(TEXT), "first")


def test_without_the_library_one_sentence_says_what_to_install(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "colonnade.identity.chain", None)  # what a missing library does to its import
    monkeypatch.delattr("colonnade.identity.chain")
    with pytest.raises(ConfigError, match=r"pip install 'colonnade\[deploy\]'"):
        Credentials.load(connection(trial, "first"))


# -- signatures --------------------------------------------------------------------------------


def test_a_signature_holds_for_its_text_and_signer_only(first: Credentials, coordinator: Credentials) -> None:
    signature = coordinator.sign(TEXT)
    first.verify(TEXT, signature, "coordinator")
    with pytest.raises(IdentityError, match="does not hold"):
        first.verify(TEXT + b" ", signature, "coordinator")
    with pytest.raises(IdentityError, match="belongs to 'coordinator'"):
        first.verify(TEXT, signature, "first")
    mixed = {**signature, "certificate": first.sign(TEXT)["certificate"]}
    with pytest.raises(IdentityError, match="does not hold"):
        first.verify(TEXT, mixed, "first")


def test_a_signature_means_nothing_elsewhere(first: Credentials, trial: Path) -> None:
    """The bare text is not what is signed: a TLS transcript or a file cannot be passed off as one of ours."""
    certificate = x509.load_pem_x509_certificate((trial / "first.crt").read_bytes())
    key = serialization.load_pem_private_key((trial / "first.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    bare = base64.b64encode(key.sign(TEXT, ec.ECDSA(hashes.SHA256()))).decode()
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(IdentityError, match="does not hold"):
        first.verify(TEXT, {"certificate": pem, "signature": bare}, "first")


@pytest.mark.parametrize("case", [_foreign, _self_signed, _by_a_leaf, _server_only])
def test_a_signature_without_the_authority_is_refused(case: Any, first: Credentials) -> None:
    _, own = case()
    signed = base64.b64encode(chain.sign(own.key, b"colonnade signature 1\0" + TEXT)).decode()
    with pytest.raises(IdentityError, match="authority"):
        first.verify(TEXT, {"certificate": own.pem.decode(), "signature": signed}, "first")


def test_a_signer_that_was_known_is_refused_when_it_expires(
    first: Credentials, coordinator: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at a chain is enough while its certificates are valid, and no longer."""
    signed = coordinator.sign(TEXT)
    for _ in range(2):
        first.verify(TEXT, signed, COORDINATOR)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=60)

    for module in (chain, credentials):
        monkeypatch.setattr(module, "datetime", Later)
    with pytest.raises(IdentityError, match="expired"):
        first.verify(TEXT, signed, COORDINATOR)
    monkeypatch.undo()
    first.verify(TEXT, signed, COORDINATOR)
    with pytest.raises(IdentityError, match="only 'first' may sign this"):
        first.verify(TEXT, signed, "first")


def test_an_expired_signer_is_refused(tmp_path: Path) -> None:
    ca = authority(days=(-30, 30))
    reader = Credentials.load(placed(tmp_path, ca, issue("first", by=ca)))
    old = issue("second", by=ca, days=(-9, -1))
    signed = base64.b64encode(chain.sign(old.key, b"colonnade signature 1\0" + TEXT)).decode()
    with pytest.raises(IdentityError, match="expired"):
        reader.verify(TEXT, {"certificate": old.pem.decode(), "signature": signed}, "second")


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "text",
        [],
        {},
        {"certificate": None, "signature": None},
        {"certificate": 1, "signature": "AAAA"},
        {"certificate": "AAAA", "signature": b"AAAA"},
        {"certificate": "", "signature": ""},
        {"certificate": "\udcff", "signature": ""},
        {"certificate": "x" * 70_000, "signature": "AAAA"},
        {"certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "signature": "AAAA"},
    ],
)
def test_anything_may_come_over_the_wire(signature: Any, first: Credentials) -> None:
    with pytest.raises(IdentityError):
        first.verify(TEXT, signature, "first")


@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255), which=st.sampled_from(["der", "signature"]))
def test_a_changed_bit_is_refused(where: float, change: int, which: str, first: Credentials) -> None:
    signature = first.sign(TEXT)
    der = x509.load_pem_x509_certificate(signature["certificate"].encode()).public_bytes(serialization.Encoding.DER)
    parts = {"der": bytearray(der), "signature": bytearray(base64.b64decode(signature["signature"]))}
    changed = parts[which]
    changed[int(where * len(changed))] ^= change
    body = base64.encodebytes(bytes(parts["der"])).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
    with pytest.raises(IdentityError):
        first.verify(TEXT, {"certificate": pem, "signature": base64.b64encode(parts["signature"]).decode()}, "first")


@given(pem=st.text(max_size=200), signature=st.text(max_size=200))
def test_noise_is_refused(pem: str, signature: str, first: Credentials) -> None:
    with pytest.raises(IdentityError):
        first.verify(TEXT, {"certificate": pem, "signature": signature}, "first")
