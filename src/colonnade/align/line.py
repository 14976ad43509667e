"""Line: the one thing alignment asks of a transport; and what it tells whoever watches."""

from __future__ import annotations

from typing import Any, Protocol

from colonnade.wire.notice import Notice

EVERYONE = "*"


class Line(Protocol):
    """A process's end of the wire. All calls come from one thread.

    What an implementation must keep: nothing is lost, and what the label holder says to all arrives in order.
    After a fault a message may come twice, and those of a party or to a party out of order. No two notices are
    meant to be the same: `number` counts what one process sent, and begins again with the process, so it is no
    key for leaving out repetitions. A label holder's line begins empty: what an earlier process of the label
    holder left undelivered is dropped.
    """

    me: str

    def send(self, to: str, notice: Notice) -> None:
        """Send to a party, to "coordinator", or (label holder only) once to all parties: "*"."""
        ...

    def receive(self, timeout: float) -> Notice | None:
        """The next notice for this process, or None after `timeout` seconds.

        Its sender has been checked against the transport's identity. This is called about twenty times a second
        while nothing arrives, so waiting should cost nothing.
        """
        ...


class Notify(Protocol):
    """Told of every step: an event's name and its facts, never an id."""

    def __call__(self, event: str, **facts: Any) -> None:
        """Told of one step."""
        ...


def silent(event: str, **facts: Any) -> None:
    """A `Say` for callers that do not watch."""
