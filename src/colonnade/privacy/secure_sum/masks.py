"""Masks between pairs of parties that cancel in the sum: X25519, HKDF and ChaCha20 of the library `cryptography`.

Each address has a ChaCha20 key of its own, expanded from the pair's secret, and the key is used for one stream from
counter 0. So nonces need no bookkeeping. What does need it is that an address serves one message only: two messages
under one mask would tell their difference. `Masker` remembers a digest of what each address was used for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from colonnade.errors import GateError, IdentityError
from colonnade.identity.cipher import KEY, KeyPair
from colonnade.privacy.secure_sum.fixed_point import Cells
from colonnade.privacy.secure_sum.roster import Address, Masked, Roster

_PURPOSE = "colonnade secure sum 1"
_START = bytes(16)  # counter and nonce: every key makes one stream


class Masker:
    """One party's masks.

    Args:
        name: this party.
        pair: its key pair for the run; the public half stands in the roster.
        roster: who adds, with keys that the caller has verified.
        spent: what `spent` was when the process ended; without it a restarted party could use a mask twice.

    Raises:
        IdentityError: the roster has another key for this party, or a key that cannot be used.
    """

    def __init__(self, name: str, pair: KeyPair, roster: Roster, spent: Mapping[Address, str] | None = None) -> None:
        if dict(roster.public).get(name) != pair.public:
            raise IdentityError(f"the roster of the secure sum does not have the mask key of party {name!r}")
        self.name = name
        self.roster = roster
        self._pair = pair
        self._digest = roster.digest
        self._secrets = {peer: _agree(name, pair, peer, key, roster) for peer, key in roster.public if peer != name}
        self._spent = dict(spent or {})

    @property
    def spent(self) -> dict[Address, str]:
        """What each address was used for; store it before the message leaves, and give it back after a restart."""
        return dict(self._spent)

    def without(self, gone: Collection[str]) -> Masker:
        """This party's masks for the rounds after some parties were lost; it knows what was spent before."""
        return Masker(self.name, self._pair, self.roster.without(gone), self._spent)

    def mask(self, cells: Cells, address: Address) -> Masked:
        """Hide encoded values; the same values at the same address give the same bytes.

        Raises:
            GateError: the address has hidden another message.
        """
        masked = cells.reshape(-1).copy()
        at = [address.round, address.part, address.array, address.rows]
        info = json.dumps([_PURPOSE, *at, list(cells.shape)]).encode()
        for peer, secret in self._secrets.items():
            stream = _stream(secret, info, masked.size)
            if self.name < peer:
                masked += stream  # modulo 2^64, as unsigned arrays do
            else:
                masked -= stream
        self._spend(address, masked, cells.shape)
        return Masked(self.name, address, self._digest, masked.reshape(cells.shape))

    def _spend(self, address: Address, masked: Cells, shape: tuple[int, ...]) -> None:
        about = json.dumps([self._digest, list(shape)]).encode()
        digest = hashlib.sha256(about + masked.astype("<u8", copy=False).tobytes()).hexdigest()
        if self._spent.setdefault(address, digest) != digest:
            raise GateError(
                f"array {address.array!r} of round {address.round}, part {address.part} was masked before with "
                "other values or another roster; send the same message again, or ask with a new round number"
            )


def _agree(name: str, pair: KeyPair, peer: str, key: bytes, roster: Roster) -> bytes:
    """The secret of two parties, bound to the run, to the whole roster and to both names."""
    try:
        shared = X25519PrivateKey.from_private_bytes(pair.private).exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:  # a point of low order: the secret would be known to everybody
        raise IdentityError(f"the mask key of party {peer!r} is not usable; it must make a new one") from None
    context = json.dumps([_PURPOSE, roster.run, roster.digest, *sorted((name, peer))]).encode()
    return HKDF(SHA256(), KEY, salt=None, info=context).derive(shared)


def _stream(secret: bytes, info: bytes, cells: int) -> Cells:
    key = HKDFExpand(SHA256(), KEY, info).derive(secret)
    stream = Cipher(ChaCha20(key, _START), mode=None).encryptor().update(bytes(8 * cells))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
