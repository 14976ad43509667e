"""Certificates that `make_trial` would never make: of any name, age, use and key, by any signer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from colonnade.identity.credentials import Connection


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Issued:
    """A certificate with its key; an authority issues others."""

    certificate: x509.Certificate
    key: Any
    chain: list[x509.Certificate] = field(default_factory=list)  # between it and the authority

    @property
    def pem(self) -> bytes:
        chain = [self.certificate, *self.chain]
        return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return bytes(self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def issue(
    *names: str,
    by: Issued | None = None,
    days: tuple[float, float] = (-1, 1),
    extensions: tuple[x509.ExtensionType, ...] = (),
    key: Any = None,
    also: Mapping[x509.ObjectIdentifier, str] | None = None,
) -> Issued:
    """A certificate with these common names, signed by `by` or by itself, valid between `days` from now."""
    key, now = key or new_key(), datetime.now(timezone.utc)
    attributes = [*(also or {}).items(), *((NameOID.COMMON_NAME, name) for name in names)]
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    builder = builder.issuer_name(by.certificate.subject if by else subject)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now + timedelta(days=days[0])).not_valid_after(now + timedelta(days=days[1]))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    signer = by.key if by else key
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return Issued(builder.sign(signer, algorithm), key)


def loaded(folder: Path, name: str) -> Issued:
    """A pair that `make_trial` wrote."""
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    return Issued(x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes()), key)


def authority(name: str = "an authority", **more: Any) -> Issued:
    return issue(name, extensions=(x509.BasicConstraints(ca=True, path_length=None),), **more)


def placed(folder: Path, ca: Issued, own: Issued, key: bytes | None = None) -> Connection:
    """The files of a connection."""
    folder.mkdir(exist_ok=True)
    paths = {name: folder / name for name in ("ca.crt", "own.crt", "own.key")}
    for path, content in zip(paths.values(), (ca.pem, own.pem, key or own.key_pem), strict=True):
        path.write_bytes(content)
    return Connection(
        server="tls://localhost:4222",
        authority=paths["ca.crt"],
        certificate=paths["own.crt"],
        key=paths["own.key"],
    )
