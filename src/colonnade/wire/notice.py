"""Notice: what organisations say to each other besides releases: agreeing, aligning, giving up.

A release carries what a party computed from its columns and passes the gate; a notice carries names,
numbers, signatures and blinded ids, and must never carry columns. So that it cannot become a way around
the gate, only `align/` and `deploy/` may make one (an architecture test reads the source for that).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.errors import WireError
from colonnade.wire.container import pack_blobs, unpack_blobs


@dataclass(frozen=True)
class Notice:
    """One message outside the rounds; `facts` are plain JSON values, `blobs` opaque bytes."""

    run: str
    number: int
    kind: str
    sender: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def payload(self) -> bytes:
        """The message as bytes."""
        header = {"run": self.run, "number": self.number, "kind": self.kind, "sender": self.sender}
        return pack_blobs({**header, "facts": dict(self.facts)}, self.blobs)


def read_notice(payload: bytes) -> Notice:
    """The notice inside a message, or `WireError` with the reason."""
    return notice_of(*unpack_blobs(payload))


def notice_of(header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Notice:
    """A notice from a decoded message."""
    kinds: tuple[tuple[str, type], ...] = (
        ("run", str),
        ("number", int),
        ("kind", str),
        ("sender", str),
        ("facts", dict),
    )
    for name, kind in kinds:
        if not isinstance(header.get(name), kind):
            raise WireError(f"the notice has no usable {name!r}; got {header.get(name)!r}")
    return Notice(header["run"], header["number"], header["kind"], header["sender"], header["facts"], dict(blobs))


def canonical(body: Mapping[str, Any]) -> bytes:
    """The one text of some plain values: what is signed and hashed."""
    try:
        return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # a number that is none
        raise WireError(f"the text cannot be signed: {error}") from None
