"""Certificates for a trial: a test authority, the server's certificate, one per party and the coordinator's.

For trials only: whoever has `ca.key` can be anybody. In production each organisation makes its own key, has it
certified by an authority that all of them trust, and nobody ever holds another's key; Colonnade asks only that
the common name is the party's name.

    certs/ca.crt, ca.key              the authority: signs, and does nothing else
    certs/server.crt, server.key      for nats-server: the host names and addresses it is reached by
    certs/<name>.crt, <name>.key      for each party and for "coordinator": client use only, no alternative
                                      names, because nats-server would take those for the user before the subject
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import ConfigError, IdentityError
from colonnade.identity import chain
from colonnade.identity.names import COORDINATOR, check_parties

HERE = ("localhost", "127.0.0.1")  # hosts of a server that is tried on one machine
MOST_DAYS = 825
AUTHORITY_LIVES = 12  # times as long as what it signs, so that parties can be added and renewed
_SKEW = timedelta(minutes=5)  # between the clocks of the organisations
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)


@dataclass(frozen=True)
class Made:
    """What `make_trial` did: names of the files it wrote, of those it left as they were, and the earliest end."""

    folder: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]
    expires: datetime


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_trial(folder: Path, parties: Iterable[str], hosts: Sequence[str] | None = None, days: int = 30) -> Made:
    """Make what is missing of a trial's certificates; nothing that is there is ever overwritten.

    A new folder appears whole or not at all. A folder with an authority (`ca.crt` and `ca.key`) is added to.

    Args:
        folder: where to; does not exist, is empty, or was made by an earlier call.
        parties: names of the parties; the coordinator is always included.
        hosts: DNS names and IP addresses of the server; default `localhost` and `127.0.0.1`.
        days: how long the new certificates are valid.

    Raises:
        ConfigError: a name, host or number of days cannot be used, or the folder is something else.
        IdentityError: a certificate in the folder is expired, or does not cover a host that was asked for.
    """
    names = check_parties(parties)
    if not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"days = {days}: needed 1 to {MOST_DAYS}")
    wanted = [_host(host) for host in (HERE if hosts is None else hosts)]
    if not wanted:
        raise ConfigError("the server needs at least one host name or address; give it with --host")
    authority = _existing_authority(folder)
    there = _pairs_there(folder, ("server", COORDINATOR, *names)) if authority else ()
    if "server" in there and hosts is not None:
        _covers(folder / "server.crt", wanted)
    missing = [name for name in ("server", COORDINATOR, *names) if name not in there]
    try:
        with _beside(folder) as new:
            signer = authority or _new_authority(new, days)
            for name in missing:
                _issue(new, signer, name, wanted if name == "server" else None, days)
            written = _put(new, folder)
    except OSError as error:
        raise ConfigError(f"certificates cannot be written to {str(folder)!r}: {error.strerror}") from None
    kept = (*(("ca",) if authority else ()), *there)
    ends = [_read(folder / f"{name}.crt").not_valid_after_utc for name in ("server", COORDINATOR, *names)]
    return Made(folder, written, tuple(f"{name}.{end}" for name in kept for end in ("crt", "key")), min(ends))


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not _HOST.fullmatch(text):
        raise ConfigError(f"host {text!r}: needed a host name or an address, without a port, e.g. nats.example")
    return x509.DNSName(text)


def _existing_authority(folder: Path) -> _Authority | None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not (folder / "ca.crt").is_file() or not (folder / "ca.key").is_file():
        raise ConfigError(
            f"{str(folder)!r} exists and has no authority (ca.crt and ca.key) to add to; choose another folder"
        )
    certificate = _read(folder / "ca.crt")
    try:
        key = chain.read_key((folder / "ca.key").read_bytes())
    except (ValueError, OSError) as error:
        raise IdentityError(f"{str(folder / 'ca.key')!r} cannot be used: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not chain.fits(certificate, key):
        raise IdentityError(f"ca.key in {str(folder)!r} does not fit ca.crt; choose another folder")
    return _Authority(certificate, key)


def _read(path: Path) -> x509.Certificate:
    try:
        certificate = chain.read_certificates(path.read_bytes())[0]
    except (ValueError, OSError) as error:
        raise IdentityError(f"{str(path)!r} cannot be used: {error}") from None
    chain.check_dates(certificate, f"{str(path)!r} (remove it and its key to have a new one made)")
    return certificate


def _pairs_there(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Those whose certificate and key are both there; half a pair is refused, since nobody can tell what it was."""
    there = []
    for name in names:
        parts = [(folder / f"{name}.{end}").exists() for end in ("crt", "key")]
        if any(parts) and not all(parts):
            raise IdentityError(f"{str(folder)!r} has only half of {name}.crt and {name}.key; remove it and try again")
        if all(parts):
            _read(folder / f"{name}.crt")
            there.append(name)
    return tuple(there)


def _covers(path: Path, wanted: list[x509.GeneralName]) -> None:
    covered = _read(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for host in wanted:
        if host not in covered:
            raise IdentityError(
                f"{str(path)!r} does not cover the host {str(host.value)!r}; remove server.crt and server.key to have "
                "new ones made"
            )


def _new_authority(folder: Path, days: int) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # The number keeps apart the authorities of two trials, which otherwise differ only in their keys.
    name = _name(f"Colonnade trial authority {secrets.token_hex(4)}")
    builder = _builder(name, name, key.public_key(), timedelta(days=days * AUTHORITY_LIVES))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    authority = _Authority(builder.sign(key, hashes.SHA256()), key)
    _write_pair(folder, "ca", authority.certificate, key)
    return authority


def _issue(folder: Path, signer: _Authority, name: str, hosts: list[x509.GeneralName] | None, days: int) -> None:
    """A leaf: the server's if it has hosts (its name is nobody's), else a client's."""
    key = ec.generate_private_key(ec.SECP256R1())
    left = signer.certificate.not_valid_after_utc - datetime.now(timezone.utc)
    subject = _name("Colonnade trial server" if hosts else name)
    builder = _builder(subject, signer.certificate.subject, key.public_key(), min(timedelta(days=days), left))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    _write_pair(folder, name, builder.sign(signer.key, hashes.SHA256()), key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - _SKEW)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key)
    return builder.not_valid_after(now + life).add_extension(identifier, critical=False)


def _usage(*allowed: str) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: use in allowed for use in every})


def _write_pair(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.crt").write_text(chain.as_pem([certificate]), encoding="ascii")
    # Nobody else may read the key at any moment, so the mode is given when the file is made.
    handle = os.open(folder / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(pem)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder next to the wanted one that is gone afterwards, whatever happens."""
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put(new: Path, folder: Path) -> tuple[str, ...]:
    """Move what was made to where it belongs: the whole folder at once, or file by file without overwriting."""
    names = tuple(sorted(path.name for path in new.iterdir()))
    if not folder.exists() or not any(folder.iterdir()):
        new.rename(folder)
        return names
    for name in names:
        if (folder / name).exists():  # made by somebody else in this very moment
            raise FileExistsError(errno.EEXIST, f"{name} is there already")
        (new / name).rename(folder / name)
    return names
