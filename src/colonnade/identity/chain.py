"""Reading certificates and keys, and holding them against an authority.

Used through `Credentials`, which imports this file only when somebody has a certificate. The chain is checked by
`cryptography`'s verifier. Its default profile is that of web browsers; ours asks of a certificate what identity
needs (a signature chain to the authority, validity now, an authority that may sign, a leaf that may be a client)
and does not insist on alternative names or key identifiers, which an organisation's own authority may leave out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError

from colonnade.errors import IdentityError

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
Certificate = x509.Certificate
MOST_CERTIFICATES = 8  # a leaf and what stands between it and the authority
FEWEST_BITS = 2048  # of an RSA key
_CLIENT = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


def read_certificates(pem: bytes) -> list[Certificate]:
    """The certificates of a PEM text, the leaf first; `ValueError` if there is none or one is damaged."""
    found = x509.load_pem_x509_certificates(pem)
    if len(found) > MOST_CERTIFICATES:
        raise ValueError(f"{len(found)} certificates; at most {MOST_CERTIFICATES} make a chain")
    return found


def read_key(pem: bytes) -> PrivateKey:
    """The private key of a PEM text; `ValueError` if it is damaged, locked or of a kind nobody here signs with."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise ValueError("it is locked with a password, and nobody is there to type it; store it unlocked") from None
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)):
        raise ValueError("it is neither an elliptic-curve, nor an RSA, nor an Ed25519 key")
    return key


def as_pem(chain: Iterable[Certificate]) -> str:
    """Certificates as PEM text, in the same order."""
    return "".join(certificate.public_bytes(serialization.Encoding.PEM).decode("ascii") for certificate in chain)


def common_name(certificate: Certificate) -> str:
    """The one common name of the subject; `ValueError` if there is none, or several to choose from."""
    names = [str(found.value) for found in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1:
        raise ValueError(f"its subject has {len(names)} common names; it needs exactly one")
    return names[0]


def fits(certificate: Certificate, key: PrivateKey) -> bool:
    """Whether `key` is the private half of the certificate's key."""
    return certificate.public_key() == key.public_key()


def check_dates(certificate: Certificate, whose: str, moment: datetime | None = None) -> None:
    """Refuse a certificate that is not valid at this moment, or at another one, with the date."""
    now = moment or datetime.now(timezone.utc)
    if now > certificate.not_valid_after_utc:
        raise IdentityError(f"{whose} expired on {_day(certificate.not_valid_after_utc)}; ask for a new one")
    if now < certificate.not_valid_before_utc:
        since = _day(certificate.not_valid_before_utc)
        raise IdentityError(f"{whose} is valid only from {since} on; check this machine's clock, or wait")


def check_chain(
    chain: list[Certificate], authority: list[Certificate], whose: str, moment: datetime | None = None
) -> None:
    """Refuse a chain (leaf first) that does not lead to one of the authority's certificates, now or at a moment."""
    builder = PolicyBuilder().store(Store(authority)).time(moment or datetime.now(timezone.utc))
    verifier = builder.extension_policies(ca_policy=_authority_policy(), ee_policy=_leaf_policy())
    try:
        verifier.build_client_verifier().verify(chain[0], chain[1:])
    except VerificationError as error:
        raise IdentityError(f"{whose} is not one of the authority's client certificates: {_reason(error)}") from None
    if any(_is_weak(certificate) for certificate in chain):
        raise IdentityError(
            f"{whose} is not one of the authority's client certificates: an RSA key of fewer than {FEWEST_BITS:,} bits"
        )


def _is_weak(certificate: Certificate) -> bool:
    key = certificate.public_key()
    return isinstance(key, rsa.RSAPublicKey) and key.key_size < FEWEST_BITS


def sign(key: PrivateKey, payload: bytes) -> bytes:
    """A signature with the scheme that belongs to the kind of key."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(payload, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(payload, _pss(), hashes.SHA256())
    return key.sign(payload)


def holds(certificate: Certificate, signature: bytes, payload: bytes) -> bool:
    """Whether `signature` is the certificate owner's signature of `payload`."""
    key = certificate.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, payload, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, payload, _pss(), hashes.SHA256())
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, payload)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _pss() -> padding.PSS:
    return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


def _leaf_policy() -> ExtensionPolicy:
    policy = ExtensionPolicy.permit_all()
    policy = policy.may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_no_authority)
    policy = policy.may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
    return policy.may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _may_be_client)


def _authority_policy() -> ExtensionPolicy:
    policy = ExtensionPolicy.permit_all()
    policy = policy.require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _is_authority)
    policy = policy.may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
    return policy.may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _may_be_client)


def _is_no_authority(policy: Policy, certificate: Certificate, found: x509.BasicConstraints | None) -> None:
    if found is not None and found.ca:
        raise ValueError("it is an authority's own certificate, not a client's")


def _may_sign(policy: Policy, certificate: Certificate, found: x509.KeyUsage | None) -> None:
    if found is not None and not found.digital_signature:
        raise ValueError("its key may not be used for signatures")


def _may_be_client(policy: Policy, certificate: Certificate, found: x509.ExtendedKeyUsage | None) -> None:
    if found is not None and not _CLIENT & set(found):
        raise ValueError("it may not be used by a client")


def _is_authority(policy: Policy, certificate: Certificate, found: x509.BasicConstraints) -> None:
    if not found.ca:
        raise ValueError("it was signed with a certificate that may not sign others")


def _may_certify(policy: Policy, certificate: Certificate, found: x509.KeyUsage | None) -> None:
    if found is not None and not found.key_cert_sign:
        raise ValueError("it was signed with a key that may not sign certificates")


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _reason(error: Exception, most: int = 160) -> str:
    """What the verifier found, without how it found it and without the certificate it was checking."""
    text = " ".join(str(error).split()).split(" (encountered processing", 1)[0]
    return text.removeprefix("validation failed: ").rsplit("ValueError: ", 1)[-1][:most]
