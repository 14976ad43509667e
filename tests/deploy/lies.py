"""Messages that a well-behaved process never sends, published past the link with a party's own certificate.

A lie is made from the message that is about to be sent. It leaves before that one, on the same subject, so the
coordinator reads the lies first, in this order, and then the truth. Children import this file: no pytest here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from colonnade.engines.message import address
from colonnade.engines.nats import NatsLink
from colonnade.identity.credentials import Credentials
from colonnade.wire.codec import decode
from colonnade.wire.container import LIMIT
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import canonical
from tests.deploy.trials import Doer

Arrays = Mapping[str, Tensor]
LEFT_OUT = object()
EARLIER = "earlier"  # file of a message that was sent before


@dataclass(frozen=True)
class Truth:
    """The message that is about to be sent, taken apart."""

    payload: bytes = field(repr=False)
    header: Mapping[str, Any]
    arrays: Arrays = field(repr=False)

    @classmethod
    def of(cls, payload: bytes) -> Truth:
        header, arrays = decode(payload)
        return cls(payload, header, arrays)

    def but(self, **changes: Any) -> bytes:
        """The same with another header; LEFT_OUT leaves an entry out."""
        header = {k: v for k, v in {**self.header, **changes}.items() if v is not LEFT_OUT}
        return as_message(header, self.arrays)

    def with_arrays(self, change: Callable[[Tensor], Tensor]) -> bytes:
        return as_message(self.header, {name: change(array) for name, array in self.arrays.items()})


def as_message(header: Any, arrays: Arrays) -> bytes:
    """Anything at all in the form of a message, without the checks of the codec."""
    ready = {name: array.contiguous() for name, array in arrays.items()}
    return save(ready, {"colonnade": json.dumps(header)})


def _spoiled(value: float) -> Callable[[Tensor], Tensor]:
    def spoil(array: Tensor) -> Tensor:
        spoilt = array.clone()
        spoilt.view(-1)[0] = value
        return spoilt

    return spoil


# What is sent instead of the upload of round 3, and what the coordinator says about it.
Lie = tuple[Callable[[Truth], bytes], str]
UPLOADS: dict[str, Lie] = {
    "NaN": (lambda t: t.with_arrays(_spoiled(float("nan"))), "holds NaN or infinite values"),
    "infinity": (lambda t: t.with_arrays(_spoiled(float("inf"))), "holds NaN or infinite values"),
    "a row too few": (lambda t: t.with_arrays(lambda a: a[1:]), "the run agreed on torch.float64 of shape (14, "),
    "a column too many": (lambda t: t.with_arrays(lambda a: a.repeat(1, 2)), "the run agreed on torch.float64 of"),
    "one dimension": (lambda t: t.with_arrays(lambda a: a.flatten()), "the run agreed on torch.float64 of shape"),
    "another dtype": (lambda t: t.with_arrays(lambda a: a.float()), "is torch.float32 of shape"),
    "other numbers than agreed": (lambda t: t.but(numbers="int8"), "numbers in 'int8'; the run agreed on 'full'"),
    "a dtype that may not travel": (lambda t: t.with_arrays(lambda a: a > 0), "has dtype torch.bool, which may not"),
    "another name": (lambda t: as_message(t.header, {"columns": next(iter(t.arrays.values()))}), "arrays ['columns'];"),
    "an array more": (
        lambda t: as_message(t.header, {**t.arrays, "more": torch.zeros(1)}),
        "arrays ['h', 'more']; the run agreed on ['h']",
    ),
    "no arrays": (lambda t: as_message(t.header, {}), "arrays []; the run agreed on"),
    "an unknown kind": (lambda t: t.but(kind="GOSSIP"), "an answer 'GOSSIP' to query 0, which was not made to"),
    "an ask that was not made": (lambda t: t.but(part=7), "an answer 'TRAIN' to query 7, which was not made to"),
    "the answer to another ask": (lambda t: t.but(part=1), "an answer 'TRAIN' to query 1, which was not made to"),
    "an old protocol version": (lambda t: t.but(version=0), "has protocol version 0; this is version 1"),
    "no version": (lambda t: t.but(version=LEFT_OUT), "has protocol version None"),
    "another party's name": (lambda t: t.but(sender="party_0"), "says it is from 'party_0'"),
    "another run": (lambda t: t.but(run="other"), "a message of run 'other'; this is run 'test'"),
    "the next round": (lambda t: t.but(number=4), "an answer to round 4, which has not been asked for; this is 3"),
    "a far round": (lambda t: t.but(number=10**6), "an answer to round 1000000, which has not been asked for"),
    "no round at all": (lambda t: t.but(number=10**30), "does not say which round and what it answers"),
    "no round": (lambda t: t.but(number=LEFT_OUT), "does not say which round and what it answers"),
    "a round that is no number": (lambda t: t.but(number=True), "does not say which round and what"),
    "a header that is no object": (lambda t: as_message([1], t.arrays), "the message header is not an object"),
    "garbage": (lambda t: bytes(range(256)) * 8, "truncated or not a message at all"),
    "nothing": (lambda t: b"", "truncated or not a message at all"),
    "half of the message": (lambda t: t.payload[: len(t.payload) // 2], "the message is damaged"),
    "too many bytes": (lambda t: t.payload + bytes(LIMIT + 100 - len(t.payload)), "is over the limit of 32,000,000"),
}
OPEN: dict[str, Lie] = {  # published as they are, without an envelope
    "the truth without an envelope": (lambda t: t.payload, "a message 'TRAIN' that is not encrypted"),
    "garbage without an envelope": (lambda t: b"x" * 300, "truncated or not a message at all"),
    "a mark without an envelope": (lambda t: b"COLSEAL1", "an encrypted message has at least 28 bytes; this one has 0"),
}
DAMAGED = "cannot be decrypted"


def remember(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """Keep a message as it left, envelope and all, to send it again later."""
    link, outgoing = args[0], args[1]
    encrypted = link.encryption.encrypt(
        COORDINATOR, address(link.run, link.me, COORDINATOR), outgoing.message.number, outgoing.message.payload
    )
    (doer.trial.place(doer.name) / EARLIER).write_bytes(encrypted)


def lie_about_uploads(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """Everything above, then a damaged envelope, then the replay of an earlier round."""
    link, truth = args[0], Truth.of(args[1].message.payload)
    subject = address(link.run, link.me, COORDINATOR)
    for make, _ in UPLOADS.values():
        publish(link, link.encryption.encrypt(COORDINATOR, subject, 3, make(truth)))
    for make, _ in OPEN.values():
        publish(link, make(truth))
    encrypted = link.encryption.encrypt(COORDINATOR, subject, 3, truth.payload)
    publish(link, encrypted[:-1] + bytes([encrypted[-1] ^ 1]))
    publish(link, (doer.trial.place(doer.name) / EARLIER).read_bytes())


def say_it_again_differently(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    """After the truth: another version of it."""
    link, truth = args[0], Truth.of(args[1].message.payload)
    other = truth.with_arrays(lambda a: a + 1)
    publish(link, link.encryption.encrypt(COORDINATOR, address(link.run, link.me, COORDINATOR), 3, other))


def publish(link: NatsLink, payload: bytes, to: str = COORDINATOR) -> None:
    """Past everything that a link does to a message."""
    if link.me == COORDINATOR:
        link._do(link._connected.jetstream().publish(address(link.run, link.me, to), payload, timeout=20))
        return

    async def pass_on() -> None:
        await link._connected.publish(address(link.run, link.me, to), payload)
        await link._connected.flush(20)

    link._do(pass_on())


# -- consents -----------------------------------------------------------------------------------


def _signed(truth: Truth, signer: Credentials, **changes: Any) -> bytes:
    body = {**truth.header["facts"]["body"], **changes}
    return truth.but(facts={"body": body, "signature": signer.sign(canonical(body))})


def _unsigned(truth: Truth, **changes: Any) -> bytes:
    facts = truth.header["facts"]
    return truth.but(facts={**facts, "body": {**facts["body"], **changes}})


Consent = tuple[Callable[[Truth, Credentials], bytes], str]
CONSENTS: dict[str, Consent] = {
    "garbage": (lambda t, own: b"x" * 100, "truncated or not a message at all"),
    "no text": (lambda t, own: t.but(facts={}), "the consent of 'party_1' lacks its text or its signature"),
    "in another's name": (lambda t, own: t.but(sender="party_0"), "a message of 'party_1' in the name of 'party_0'"),
    "for another run": (lambda t, own: t.but(run="other"), "in the name of 'party_1', run 'other'"),
    "changed after it was signed": (lambda t, own: _unsigned(t, width=99), "the signature of 'party_1' does not hold"),
    "about another proposal": (lambda t, own: _signed(t, own, proposal="0" * 64), "is about another proposal"),
    "signed for another": (lambda t, own: _signed(t, own, party="party_0"), "is about another proposal"),
    "a network without shape": (lambda t, own: _signed(t, own, shape=[-1]), "describes its network in a way that"),
    "no key": (lambda t, own: _signed(t, own, key="xyz"), "has no public key"),
}


def lie_about_consent(doer: Doer, value: Any, args: tuple[Any, ...]) -> None:
    link, truth = args[0], Truth.of(args[1].message.payload)
    own = Credentials.load(doer.trial.connections[doer.name])
    for make, _ in CONSENTS.values():
        publish(link, make(truth, own))
