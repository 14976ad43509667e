"""What goes over a link: messages that arrive, messages to send, and events for whoever operates it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice

if TYPE_CHECKING:
    from colonnade.privacy.sealed import Release  # not loaded here: an alignment sends notices only, without torch

EVERYONE = "*"


class Notify(Protocol):
    """Where events for the operator go."""

    def __call__(self, event: str, **facts: Any) -> None:
        """One event with plain facts; never columns, ids or secrets."""
        ...


def address(run: str, sender: str, to: str) -> str:
    """Who sends to whom ("*": to all) in which run: encryption is bound to it, and only `sender` may use it."""
    tail = {EVERYONE: "all", COORDINATOR: f"up.{sender}"}.get(to, f"down.{to}")
    return f"run.{run}.{tail}"


@dataclass(frozen=True)
class Incoming:
    """A delivered message."""

    address: str
    data: bytes = field(repr=False)
    _message: Any = field(default=None, repr=False)  # the transport's own handle
    encrypted: bool = False  # whether it came so
    number: int = 0  # of the round, as the encryption says
    at: float = field(default_factory=time.monotonic, compare=False)  # when it came

    @property
    def sender(self) -> str:
        """Whose message, by its address, under which only the owner of that certificate may send."""
        return self.address.rsplit(".", 1)[1] if ".up." in self.address else COORDINATOR

    @property
    def to_all(self) -> bool:
        """Whether everybody gets it."""
        return self.address.endswith(".all")


class Encryption(Protocol):
    """Encryption between this process and the others, so that whoever runs the server reads nothing."""

    def encrypt(self, to: str, address: str, number: int, payload: bytes) -> bytes:
        """The payload for one reader, or for everybody ("*")."""
        ...

    def decrypt(self, incoming: Incoming) -> Incoming:
        """The message with its payload; `IdentityError` if it was encrypted by or for somebody else."""
        ...


@dataclass(frozen=True)
class Outgoing:
    """A message to send: `to` is "*", a party's name or "coordinator"."""

    to: str
    message: Release | Notice
    part: int = 0  # tells apart messages of one round and kind
    unencrypted: bool = False  # part of the agreement, which is signed and not encrypted


def named(run: str, notify: Notify) -> Notify:
    """Every event says of which run it is."""

    def tell(event: str, **facts: object) -> None:
        notify(event, **{"run": run, **facts})

    return tell
