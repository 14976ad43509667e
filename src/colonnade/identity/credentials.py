"""Credentials: who a process is, proved by a certificate; signatures that others can check.

    [connection]                       # of party.toml and coordinator.toml
    server = "tls://nats.example:4222"
    authority = "certs/ca.crt"
    certificate = "certs/bank_a.crt"
    key = "certs/bank_a.key"

The certificate's common name is the process's name everywhere: at the server, in messages, in signatures.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import Field

from colonnade.config import Settings
from colonnade.errors import ConfigError, IdentityError

if TYPE_CHECKING:
    from colonnade.identity.chain import Certificate, PrivateKey

MOST_CHARACTERS = 2**16  # of a certificate chain that arrives in a message
_PURPOSE = b"colonnade signature 1\0"  # so that nothing signed here means anything elsewhere, nor the other way


class Connection(Settings):
    """How a process reaches the server between the organisations, and who it is there."""

    server: str = Field(
        pattern=r"^tls://[^\s/@]+:\d{1,5}$", description="address of the NATS server, as tls://host:port"
    )
    authority: Path = Field(description="certificate of the authority that all sides trust (PEM)")
    certificate: Path = Field(description="own certificate (PEM); its common name is the process's name")
    key: Path = Field(description="private key of the certificate (PEM, without a password)")


@dataclass(frozen=True)
class Credentials:
    """A checked certificate with its key; make one with `Credentials.load`."""

    name: str
    connection: Connection
    _chain: tuple[Certificate, ...] = field(repr=False, compare=False)
    _authority: tuple[Certificate, ...] = field(repr=False, compare=False)
    _key: PrivateKey = field(repr=False, compare=False)

    @classmethod
    def load(cls, connection: Connection) -> Credentials:
        """Read the three files of a connection and check that they belong together.

        Raises:
            ConfigError: a file is missing or is not what it should be.
            IdentityError: the key is not the certificate's, or the certificate is expired, not yet valid, or not
                signed by the authority.
        """
        x509 = _x509()
        authority = _parsed(x509.read_certificates, connection.authority, "authority's certificate")
        chain = _parsed(x509.read_certificates, connection.certificate, "certificate")
        key = _parsed(x509.read_key, connection.key, "private key")
        whose = f"the certificate {str(connection.certificate)!r}"
        try:
            name, fits = x509.common_name(chain[0]), x509.fits(chain[0], key)
        except Exception as error:  # whatever a strange certificate makes its reader say
            raise IdentityError(f"{whose} cannot be used: {error}") from None
        if not fits:
            raise IdentityError(f"the key {str(connection.key)!r} does not fit {whose}; give the pair made together")
        x509.check_dates(chain[0], whose)
        x509.check_chain(chain, authority, whose)
        return cls(name, connection, tuple(chain), tuple(authority), key)

    def tls(self) -> ssl.SSLContext:
        """For a client: shows the certificate, and refuses a server that the authority does not vouch for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the server's chain and host name
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(cafile=self.connection.authority)
            context.load_cert_chain(self.connection.certificate, self.connection.key)
        except OSError as error:  # SSLError is one: the files changed since they were loaded
            raise IdentityError(f"the certificates of {self.name!r} cannot be used: {error}") from None
        return context

    def sign(self, payload: bytes) -> dict[str, str]:
        """A signature of `payload` with the certificate that proves it, ready for JSON."""
        x509 = _x509()
        signature = x509.sign(self._key, _PURPOSE + payload)
        return {"certificate": x509.as_pem(self._chain), "signature": base64.b64encode(signature).decode("ascii")}

    def verify(self, payload: bytes, signature: Mapping[str, Any], signer: str) -> None:
        """Check that `signer` signed `payload`; `signature` comes from the wire and may be anything.

        Raises:
            IdentityError: the certificate is not the authority's, not valid now or not `signer`'s, or the signature
                does not hold.
        """
        check_signature(payload, signature, signer, self._authority)

    @property
    def authority(self) -> tuple[Certificate, ...]:
        """Whom this process trusts."""
        return self._authority


def read_authority(path: Path) -> tuple[Certificate, ...]:
    """The certificates of an authority, for somebody who has no certificate and only checks signatures.

    Raises:
        ConfigError: the file is missing or is not what it should be.
    """
    return tuple(_parsed(_x509().read_certificates, path, "authority's certificate"))


def check_signature(
    payload: bytes,
    signature: Mapping[str, Any],
    signer: str,
    authority: Sequence[Certificate],
    moment: datetime | None = None,
) -> None:
    """Check that `signer` signed `payload`; `signature` comes from outside and may be anything.

    Args:
        payload: what was signed.
        signature: as `Credentials.sign` makes it.
        signer: whose it should be.
        authority: who vouches for the signer.
        moment: when the certificate has to be valid; None: now.

    Raises:
        IdentityError: the certificate is not the authority's, not valid at that moment or not `signer`'s, or the
            signature does not hold.
    """
    x509 = _x509()
    whose = f"the certificate that came with the signature of {signer!r}"
    chain, signed = _unpacked(signature, whose)
    try:
        name = x509.common_name(chain[0])
        if moment is not None or not _vouched_for(tuple(chain), tuple(authority)):
            x509.check_dates(chain[0], whose, moment)
            x509.check_chain(chain, list(authority), whose, moment)
        holds = name == signer and x509.holds(chain[0], signed, _PURPOSE + payload)
    except IdentityError:
        raise
    except Exception as error:  # a stranger's certificate: whatever its reader says, it proves nothing
        raise IdentityError(f"{whose} cannot be used: {type(error).__name__}") from None
    if name != signer:
        raise IdentityError(f"{whose} belongs to {name[:64]!r}; only {signer!r} may sign this")
    if not holds:
        raise IdentityError(f"the signature of {signer!r} does not hold: the text was changed or another key used")


def _vouched_for(chain: tuple[Certificate, ...], authority: tuple[Certificate, ...]) -> bool:
    """Whether the authority is known to vouch for a chain now: every message to all brings the same one.

    Only a date can change that, so while all of these certificates are valid, one look is enough.
    """
    now, both = datetime.now(timezone.utc), (*chain, *authority)
    return all(c.not_valid_before_utc <= now <= c.not_valid_after_utc for c in both) and _checked_once(chain, authority)


@lru_cache(maxsize=256)
def _checked_once(chain: tuple[Certificate, ...], authority: tuple[Certificate, ...]) -> bool:
    try:
        _x509().check_chain(list(chain), list(authority), "the certificate")
    except IdentityError:
        return False  # whoever asks finds out why
    return True


@lru_cache(maxsize=256)
def _read_chain(pem: str) -> tuple[Certificate, ...]:
    return tuple(_x509().read_certificates(pem.encode()))


def _unpacked(signature: Mapping[str, Any], whose: str) -> tuple[list[Certificate], bytes]:
    if not isinstance(signature, Mapping):
        raise IdentityError(f"{whose} is missing: the signature is no object")
    pem, signed = signature.get("certificate"), signature.get("signature")
    if not isinstance(pem, str) or not isinstance(signed, str):
        raise IdentityError(f"{whose} is missing: needed the texts 'certificate' and 'signature'")
    if max(len(pem), len(signed)) > MOST_CHARACTERS:
        raise IdentityError(f"{whose} is longer than {MOST_CHARACTERS:,} characters")
    try:
        return list(_read_chain(pem)), base64.b64decode(signed, validate=True)
    except binascii.Error:
        raise IdentityError(f"the signature that came with {whose} is not base64") from None
    except Exception:  # a stranger's text: whatever the reader says, it is no certificate
        raise IdentityError(f"{whose} cannot be read") from None


def _parsed(read: Any, path: Path, what: str) -> Any:
    try:
        return read(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"[connection] the {what} {str(path)!r} does not exist; `colonnade certificates` makes some for a trial"
        ) from None
    except OSError as error:
        raise ConfigError(f"[connection] the {what} {str(path)!r} cannot be read: {error.strerror}") from None
    except Exception as error:  # the libraries below have many ways to say that a file is not PEM
        reason = " ".join(str(error).split())[:120]
        raise ConfigError(f"[connection] {str(path)!r} is not a usable {what} in PEM form: {reason}") from None


def _x509() -> ModuleType:
    try:
        from colonnade.identity import chain
    except ImportError:
        raise ConfigError(
            "certificates need cryptography, which is not installed; run: pip install 'colonnade[deploy]'"
        ) from None
    return chain


def why_shut_out(error: Exception) -> str | None:
    """Why a server does not let a client in, if trying again is useless; None if it may come right by itself."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not one that our authority vouches for ({error.verify_message})"
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        return f"TLS failed ({error}); check certificate, key and authority"
    text = str(error).lower()
    if "authorization" in text or "authentication" in text:
        return "our certificate is of a name that it does not know; have it added with `colonnade nats-config`"
    return None
