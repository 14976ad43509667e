"""Envelopes: bytes that only one other process can read, whoever runs the server between them.

X25519 agrees on a secret, HKDF makes a key of it, AES-256-GCM encrypts with it. The public keys must
reach the other side signed (`Credentials.sign`): encryption proves only that the holder of the other key
encrypted it, not who that is.

    encrypted = nonce (12 random bytes) | ciphertext | tag (16 bytes)

What a message is about (run, number, sender, kind) and its direction are authenticated along with it. So a
message cannot be decrypted as an answer to something else, nor when it is sent back to whom it came from.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.errors import IdentityError

KEY = 32  # bytes of an X25519 key, and of the derived one
NONCE = 12
TAG = 16
_PURPOSE = b"colonnade envelope 1"


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair; make a new one per run, and keep `private` only in the run's own store."""

    private: bytes = field(repr=False)
    public: bytes

    @classmethod
    def new(cls) -> KeyPair:
        """A fresh pair from the operating system's randomness."""
        return cls.restore(X25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def restore(cls, private: bytes) -> KeyPair:
        """The pair whose private half was stored."""
        if len(private) != KEY:
            raise IdentityError(f"a stored private key has {KEY} bytes, this one {len(private)}; the store is damaged")
        return cls(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())

    def derive(self, purpose: bytes, about: bytes) -> bytes:
        """A secret of this pair's holder alone, for one purpose: HKDF of the private half."""
        info = _measured(purpose) + _measured(about)
        return HKDF(SHA256(), KEY, salt=None, info=info).derive(self.private)


@dataclass(frozen=True)
class Cipher:
    """Encrypts and decrypts what travels between two key pairs; see `Cipher.between`."""

    mine: bytes  # public keys: they say which way a message went
    theirs: bytes
    _cipher: AESGCM = field(repr=False, compare=False)

    @classmethod
    def between(cls, mine: KeyPair, theirs: bytes, context: str) -> Cipher:
        """What the holder of `mine` uses towards the holder of the public key `theirs`.

        Args:
            mine: this side's pair.
            theirs: the other side's public key, 32 bytes.
            context: what the key is for, e.g. the run's name; both sides must say the same.

        Raises:
            IdentityError: `theirs` is no public key, or is this side's own.
        """
        if not isinstance(theirs, bytes) or len(theirs) != KEY:
            raise IdentityError(f"a public key has {KEY} bytes; what came is none")
        if theirs == mine.public:
            raise IdentityError("the other side's public key is this side's own; each needs a key of its own")
        try:
            theirs_key = X25519PublicKey.from_public_bytes(theirs)
            secret = X25519PrivateKey.from_private_bytes(mine.private).exchange(theirs_key)
        except ValueError:  # a point of low order: the secret would be known to everybody
            raise IdentityError("the other side's public key is not usable; it must make a new one") from None
        about = b"".join(_measured(part) for part in (*sorted((mine.public, theirs)), context.encode()))
        key = HKDF(SHA256(), KEY, salt=None, info=_PURPOSE + about).derive(secret)
        return cls(mine.public, theirs, AESGCM(key))

    @classmethod
    def broadcast(cls, secret: bytes, speaker: bytes, context: str) -> Cipher:
        """What everybody who shares `secret` uses for the words of one speaker, named by its public key."""
        if len(secret) != KEY:
            raise IdentityError(f"a shared secret has {KEY} bytes, this one {len(secret)}")
        about = _measured(b"broadcast") + _measured(speaker) + _measured(context.encode())
        key = HKDF(SHA256(), KEY, salt=None, info=_PURPOSE + about).derive(secret)
        return cls(speaker, speaker, AESGCM(key))

    def encrypt(self, plain: bytes, about: bytes) -> bytes:
        """`plain` so that only the other side reads it; it must say the same `about` to open it."""
        nonce = os.urandom(NONCE)
        return nonce + self._cipher.encrypt(nonce, plain, _measured(self.mine) + about)

    def decrypt(self, encrypted: bytes, about: bytes) -> bytes:
        """What the other side encrypted, or `IdentityError`; nothing of a changed message is returned."""
        if len(encrypted) < NONCE + TAG:
            raise IdentityError(f"an encrypted message has at least {NONCE + TAG} bytes; this one has {len(encrypted)}")
        try:
            return self._cipher.decrypt(encrypted[:NONCE], encrypted[NONCE:], _measured(self.theirs) + about)
        except InvalidTag:
            raise IdentityError(
                "a message cannot be decrypted: it was changed, encrypted for somebody else or about something else"
            ) from None


def _measured(part: bytes) -> bytes:
    """With its length in front, so that two parts cannot be cut at another place."""
    return len(part).to_bytes(4, "big") + part
