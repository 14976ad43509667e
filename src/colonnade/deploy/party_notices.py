"""What a party tells the coordinator besides its releases: done, here, or why not. No number of its table is in it."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.deploy.agreement import refusal
from colonnade.engines.link import Link
from colonnade.engines.message import Notify, Outgoing
from colonnade.errors import ColonnadeError, ConfigError, DataError, ModelError
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice


@dataclass(frozen=True)
class PartyNotices:
    """The notices of one party in one run."""

    link: Link
    me: str
    notify: Notify

    def tell(self, kind: str, number: int, unencrypted: bool = False) -> None:
        """Say one word about a request or a notice."""
        notice = Notice(self.link.run, number, kind, self.me)
        self.link.send(Outgoing(COORDINATOR, notice, unencrypted=unencrypted))

    def refuse(self, number: int, error: ColonnadeError, unencrypted: bool = False) -> None:
        """Tell the coordinator why not; what is wrong with this party's own table is only for its own operator."""
        self.notify("refusing", round=number, reason=str(error))
        own = isinstance(error, (DataError, ConfigError, ModelError))
        told = f"party {self.me!r} has a problem of its own; its operator sees which" if own else str(error)
        notice = refusal(self.link.run, number, self.me, told)
        self.link.send(Outgoing(COORDINATOR, notice, unencrypted=unencrypted or self.link.encryption is None))
