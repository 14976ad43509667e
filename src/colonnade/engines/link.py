"""Link: what the processes of a run ask of a transport, and nothing more; `nats.py` is the one that travels.

What an implementation must keep: a message comes from whom its address names, whole and unchanged, or not at all. It
may be lost, repeated, delayed, and come before an earlier one: whoever waits for an answer asks again, and a party
repeats the bytes it stored. How large a message can be, where it lies meanwhile and what it is called there is the
implementation's own business.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from colonnade.engines.message import Encryption, Incoming, Outgoing, address
from colonnade.identity.credentials import Credentials


class Link(Protocol):
    """One organisation's end of the connection in one run; all calls but those on `came_back` come from one thread."""

    run: str
    credentials: Credentials  # whose end it is
    encryption: (
        Encryption | None
    )  # set when the others' keys are known: from then on messages are encrypted and decrypted here
    came_back: threading.Event  # the connection was lost and is there again: what was on its way may be gone

    def lay(self, parties: Sequence[str], anew: bool = False) -> None:
        """For the coordinator: prepare for these parties. `anew`: and drop whatever has not been delivered yet."""
        ...

    def listen(self) -> None:
        """Begin to receive what is addressed to this process."""
        ...

    def send(self, *to_send: Outgoing, again: bool = False, answers: Iterable[Incoming] = ()) -> None:
        """Send, and come back when the messages are under way, or on the disk of whoever delivers them.

        `again` marks a deliberate repetition, which must not be taken for one that came twice by accident. `answers`
        are the messages that this answers; they are `done` with it.
        """
        ...

    def next(self, timeout: float) -> Incoming | None:
        """The next message, decrypted, or None if none comes in time; one that cannot be decrypted is refused."""
        ...

    def done(self, received: Iterable[Incoming]) -> None:
        """What was made of these messages is stored: they need not come again."""
        ...

    def forget(self, incoming: Incoming) -> None:
        """Let go of a message for now: it may come again."""
        ...

    def refuse(self, incoming: Incoming) -> None:
        """Never deliver this one again."""
        ...

    def purge(self) -> None:
        """For the coordinator: drop what is left of the run's messages."""
        ...


def enclosed(link: Link, outgoing: Outgoing) -> tuple[str, bytes]:
    """A message as it leaves: its address, and its bytes, encrypted once there are keys (not if `unencrypted`)."""
    at, payload = address(link.run, link.credentials.name, outgoing.to), outgoing.message.payload
    if link.encryption is not None and not outgoing.unencrypted:
        payload = link.encryption.encrypt(outgoing.to, at, outgoing.message.number, payload)
    return at, payload
