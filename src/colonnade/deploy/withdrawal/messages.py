"""What organisations say to each other about people who withdrew: numbers of aligned rows, signed and encrypted.

    ASK      coordinator -> *      an attempt, the alignment whose row numbers are meant, a public key; signed
    TELL     party -> coordinator  a public key; the rows that this party leaves out; signed, encrypted
    ROWS     coordinator -> party  the rows that anybody leaves out; signed, encrypted
    DONE     party -> coordinator  the digest of the rows that it leaves out now; signed, encrypted
    CANNOT   party -> coordinator  why not; signed

Ids do not travel. Who runs the server between them reads sizes. Each side says all it knows every time: what is lost,
and whoever was put back from an old copy, is made good with the next question.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from colonnade.align import messages as m
from colonnade.errors import WireError
from colonnade.identity.cipher import Cipher, KeyPair
from colonnade.wire.notice import Notice

MOST_STEPS = 1000  # extensions of one alignment
ASK, TELL, ROWS, DONE, CANNOT = "ASK", "TELL", "ROWS", "DONE", "CANNOT"


class Question(m.Facts):
    """ASK: `extends` are the digests of the alignments that this one extends, whose row numbers hold, too."""

    attempt: m.Nonce
    alignment: m.Hex32
    extends: Annotated[tuple[m.Hex32, ...], Field(strict=False, max_length=MOST_STEPS)]
    key: m.Hex32


class Answer(m.Facts):
    """TELL: what this party leaves out is in the encrypted part."""

    attempt: m.Nonce
    key: m.Hex32


class Reason(m.Facts):
    """CANNOT."""

    attempt: m.Nonce
    reason: Annotated[str, Field(max_length=m.MOST_REASON)]


@dataclass(frozen=True)
class Private:
    """Encrypted notices between the label holder and one party, in one attempt; both also sign them."""

    sender: m.Sender
    cipher: Cipher
    attempt: str

    @classmethod
    def between(cls, sender: m.Sender, pair: KeyPair, key: str, party: str, attempt: str) -> Private:
        """Of the pair of this side and the public key that came from the other."""
        return cls(sender, Cipher.between(pair, bytes.fromhex(key), f"withdrawn {attempt} {party}"), attempt)

    def send(self, to: str, kind: str, body: bytes, facts: m.Facts | None = None) -> None:
        """Say something that only the other reads."""
        plain = facts or m.Bare(attempt=self.attempt)
        self.sender.sign(to, kind, plain, self.cipher.encrypt(body, f"{kind} {self.attempt}".encode()))

    def read(self, notice: Notice) -> bytes:
        """What a signed notice says; `IdentityError` if it was changed, or is somebody else's."""
        return self.cipher.decrypt(self.sender.verified(notice), f"{notice.kind} {self.attempt}".encode())


def packed(rows: np.ndarray) -> bytes:
    """Row numbers as they travel."""
    return rows.astype("<i4").tobytes()


def unpacked(body: bytes, notice: Notice) -> np.ndarray:
    """Row numbers that came: ascending, from 0 on."""
    rows = np.frombuffer(body, dtype="<i4").astype(np.int64) if len(body) % 4 == 0 else np.array([-1])
    if (len(rows) and rows[0] < 0) or (np.diff(rows) <= 0).any():
        raise WireError(f"{m.called(notice.sender)} sent a {notice.kind} whose row numbers cannot be")
    return rows


def rows_digest(alignment: str, rows: np.ndarray) -> str:
    """Of a set of rows: the same on all sides that leave out the same people."""
    return hashlib.sha256(alignment.encode() + packed(np.unique(rows))).hexdigest()
