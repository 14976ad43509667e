"""What the two sides say to each other, checked field by field, signed or encrypted.

    HELLO     party -> coordinator   I was started (again)
    PROPOSE   coordinator -> *       name, parties, what is kept, number of ids, public key,    signed
                                     and the digest of the alignment that is extended, if any
    JOIN      party -> coordinator   number of ids, public key, digest of the proposal          signed
    REFUSE    party -> coordinator   the reason
    REQUEST   coordinator -> *       one part of H(x)^a                                         signed
    SETUP     party -> coordinator   one part of H(y)^b                                         encrypted
    RESPONSE  party -> coordinator   one part of H(x)^(a b)                                     encrypted
    RESULT    coordinator -> party   how many rows there are                                    encrypted
    ROWS      coordinator -> party   one part of (place in its setup, row number)               encrypted
    DONE      party -> coordinator   the digest of what it wrote                                encrypted
    STOP      coordinator -> *       all have written, or the alignment is given up: why        signed

What is said to all is signed, what is said to one is encrypted with keys that came signed. So the server
between them reads sizes only, and can stop an alignment but not change one. Ids never travel in any form but
blinded. Every message names its attempt; those of another attempt are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from colonnade.align.line import Line
from colonnade.align.settings import MOST_IDS, Keep, Name, PartyName
from colonnade.errors import IdentityError, WireError
from colonnade.identity.cipher import Cipher
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice

Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=MOST_IDS)]
Why = Literal["done", "rows", "refused", "fault"]
MOST_REASON = 500  # characters


class Facts(BaseModel):
    """The plain part of a message: exact types, nothing besides the declared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hello(Facts):
    """A party's process says that it begins; `session` is new with every process."""

    session: Nonce


class Proposal(Facts):
    """What the label holder proposes to all parties."""

    format: Literal[1] = 1
    name: Name
    attempt: Nonce
    parties: Annotated[tuple[PartyName, ...], Field(strict=False, min_length=1)]
    keep: Keep
    ids: Annotated[int, Field(ge=1, le=MOST_IDS)]
    key: Hex32
    extends: Hex32 | None = None  # digest of the alignment that is extended; None: a new one is made

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, object]:
        """A new alignment is proposed as by versions that could not extend one."""
        return {name: value for name, value in plain(self).items() if name != "extends" or value is not None}

    @property
    def digest(self) -> str:
        """What a party that agrees repeats."""
        return hashlib.sha256(_canonical(self.model_dump(mode="json"))).hexdigest()


class Join(Facts):
    """A party agrees to one proposal."""

    attempt: Nonce
    proposal: Hex32
    ids: Annotated[int, Field(ge=1, le=MOST_IDS)]
    key: Hex32


class Refusal(Facts):
    """A party does not take part, or no longer."""

    attempt: Nonce
    reason: Annotated[str, Field(max_length=MOST_REASON)]


class Part(Facts):
    """One part of a long list."""

    attempt: Nonce
    part: Count


class Bare(Facts):
    """A message that says everything in its encrypted body."""

    attempt: Nonce


class Summary(Facts):
    """The body of RESULT: the rows there are, and how many of them the party holds."""

    complete: Count
    partial: Count
    matched: Count  # ids of the party that the label holder has too
    rows: Count  # ids of the party that have a row


class Stop(Facts):
    """The end, good or bad; the party's side makes a sentence of it, no text travels."""

    attempt: Nonce
    why: Why


F = TypeVar("F", bound=Facts)


def called(sender: str) -> str:
    """How sentences call a sender."""
    return "the label holder" if sender == COORDINATOR else f"party {sender!r}"


def read(model: type[F], notice: Notice) -> F:
    """The facts of a notice as what they should be, or `WireError`; values stay out of the sentence."""
    return checked(model, {k: v for k, v in notice.facts.items() if k != "signature"}, notice)


def read_body(model: type[F], body: bytes, notice: Notice) -> F:
    """The JSON body of an encrypted notice as what it should be."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError(f"{called(notice.sender)} sent a {notice.kind} that is not JSON") from None
    return checked(model, values, notice)


def checked(model: type[F], values: Any, notice: Notice) -> F:
    """`values` as a `model`, or `WireError` with the first thing that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:40] for part in first["loc"]) or "content"
        raise WireError(
            f"{called(notice.sender)} sent a {notice.kind} whose {where} is not usable: {first['msg'].lower()}"
        ) from None


def readable(text: str) -> str:
    """A stranger's text as one line that can be shown."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MOST_REASON]


@dataclass
class Sender:
    """Makes, signs and encrypts this process's notices, and opens those of others."""

    line: Line
    credentials: Credentials
    name: str
    sent: int = 0

    def __post_init__(self) -> None:
        if self.credentials.name != self.line.me:
            raise IdentityError(
                f"the certificate is of {self.credentials.name!r}, but this process sends as {self.line.me!r}"
            )

    def send(self, to: str, kind: str, facts: Facts, blobs: Mapping[str, bytes] | None = None) -> None:
        """A notice as it is."""
        self._send(to, kind, facts.model_dump(mode="json"), blobs or {})

    def sign(self, to: str, kind: str, facts: Facts, points: bytes = b"") -> None:
        """A notice that proves who made it."""
        plain = facts.model_dump(mode="json")
        signature = self.credentials.sign(self._signed(kind, self.line.me, plain, points))
        self._send(to, kind, {**plain, "signature": signature}, {"points": points} if points else {})

    def encrypt(self, to: str, kind: str, facts: Facts, body: bytes, cipher: Cipher) -> None:
        """A notice whose body only one other process can read."""
        plain = facts.model_dump(mode="json")
        about = self._about(kind, self.line.me, plain)
        self._send(to, kind, plain, {"sealed": cipher.encrypt(body, about)})

    def verified(self, notice: Notice) -> bytes:
        """The points of a signed notice (none in some); `IdentityError` if its sender did not sign it."""
        facts = {k: v for k, v in notice.facts.items() if k != "signature"}
        points = notice.blobs.get("points", b"")
        signed = self._signed(notice.kind, notice.sender, facts, points)
        self.credentials.verify(signed, notice.facts.get("signature", {}), notice.sender)
        return points

    def decrypted(self, notice: Notice, cipher: Cipher) -> bytes:
        """The body of an encrypted notice, or `WireError`."""
        about = self._about(notice.kind, notice.sender, notice.facts)
        try:
            return cipher.decrypt(notice.blobs.get("sealed", b""), about)
        except IdentityError:
            raise WireError(
                f"{called(notice.sender)} sent a {notice.kind} that cannot be decrypted: it was changed on its way, or "
                "encrypted with another key"
            ) from None

    def _send(self, to: str, kind: str, facts: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
        self.line.send(to, Notice(self.name, self.sent, kind, self.line.me, facts, blobs))
        self.sent += 1

    def _signed(self, kind: str, sender: str, facts: Mapping[str, Any], points: bytes) -> bytes:
        return _canonical([self.name, kind, sender, facts, hashlib.sha256(points).hexdigest()])

    def _about(self, kind: str, sender: str, facts: Mapping[str, Any]) -> bytes:
        return _canonical([self.name, kind, sender, facts])


def _canonical(value: Any) -> bytes:
    """The same bytes on every side."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
