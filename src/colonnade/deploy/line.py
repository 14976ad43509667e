"""The line of an alignment, of a question to candidates or about people who withdrew, over a link.

Notices in, notices out. Nothing of it outlives the process. Each has a stream of its own, so that it never meets the
messages of a training of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from colonnade.engines.connection import NatsConnection
from colonnade.engines.link import Link
from colonnade.engines.message import Notify, Outgoing
from colonnade.engines.nats import NatsLink
from colonnade.errors import WireError
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice, read_notice


@contextmanager
def open_line(
    credentials: Credentials,
    name: str,
    notify: Notify,
    parties: tuple[str, ...] = (),
    what: Literal["align", "worth", "forget"] = "align",
    shared: NatsConnection | None = None,
) -> Iterator[LinkLine]:
    """A line over NATS while it is used; the label holder names the parties, and starts with an empty one."""
    link = NatsLink(credentials, f"{what}-{name}", notify, keeps_answers=True, shared=shared).open()
    try:
        yield LinkLine(link, name, notify, parties)
    finally:
        link.close()


class LinkLine:
    """An `align.line.Line` between separate organisations, over a link that loses nothing."""

    def __init__(self, link: Link, name: str, notify: Notify, parties: tuple[str, ...] = ()) -> None:
        self.me, self.name, self._notify, self._link = link.credentials.name, name, notify, link
        if self.me == COORDINATOR:
            link.lay(parties)
            link.purge()
        link.listen()

    def send(self, to: str, notice: Notice) -> None:
        """Send to a party, to "coordinator" or to "*"; comes back when the server has it."""
        self._link.send(Outgoing(to, notice), again=True)

    def clear(self) -> None:
        """For the label holder: leave nothing on the server."""
        self._link.purge()

    def receive(self, timeout: float) -> Notice | None:
        """The next notice whose sender is the one its subject proves; others are refused and named."""
        incoming = self._link.next(timeout)
        if incoming is None:
            return None
        self._link.done([incoming])  # whatever is interrupted starts over: nothing is kept for later
        try:
            notice = read_notice(incoming.data)
            if notice.sender != incoming.sender or notice.run != self.name:
                raise WireError(f"a message in the name of {notice.sender[:64]!r} for {notice.run[:64]!r}")
        except WireError as error:
            self._notify("refused", party=incoming.sender, reason=str(error))
            return None
        return notice
