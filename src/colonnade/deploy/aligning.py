"""An alignment between organisations, from their configuration files: for `colonnade align` and for `colonnade serve`.

The label holder invites the parties, so that one that serves takes part by itself, as often as its policy allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.align.files import Alignment
from colonnade.align.ids import read_ids
from colonnade.align.label_holder import align_as_label_holder
from colonnade.align.party import Agree, agree_to_all, align_as_party
from colonnade.align.settings import AlignSettings, JoinSettings
from colonnade.config import build
from colonnade.deploy.invitation import ALIGNMENT, EXTENSION, RUNS, Invitations
from colonnade.deploy.line import LinkLine, open_line
from colonnade.deploy.sections import CoordinatorFile, PartyFile
from colonnade.engines.connection import NatsConnection
from colonnade.engines.message import Notify
from colonnade.engines.nats import NatsLink
from colonnade.errors import ConfigError
from colonnade.folder import claimed
from colonnade.wire.notice import Notice
from colonnade.withdrawn import read_withdrawn

ASK_AGAIN = 5.0  # seconds between two invitations of a party that has not joined


@dataclass(frozen=True)
class How:
    """How an alignment is done, besides what the files say."""

    more: bool = False  # the one that is there is extended
    patience: float = 600.0  # seconds without any progress before giving up
    workers: int = 0  # threads that blind ids; 0: one per core


def align_label_holder(read: CoordinatorFile, how: How, notify: Notify) -> tuple[Alignment, Path]:
    """The label holder's side; the alignment, and the folder that it is in now."""
    c, credentials = read.coordinator, read.credentials()
    asked = tuple(name for name in c.parties if name not in c.own)
    if not asked:
        raise ConfigError("[coordinator] own names every party; there is nobody to align with")
    chosen = {"name": c.run, "parties": asked, "own": c.own, "keep": c.keep, "most_ids": c.most_ids}
    settings = build(AlignSettings, {**chosen, "patience": how.patience, "more": how.more}, "coordinator")
    ids = read_ids(c.table, c.id, text=c.text)
    with (
        claimed(c.alignment),
        open_line(credentials, c.run, notify, asked) as line,
        closing(NatsLink(credentials, RUNS, notify).open()) as runs,
    ):
        notify("aligning", run=c.run, parties=list(asked))
        invite = Invitations(runs, c.run, asked, EXTENSION if how.more else ALIGNMENT)
        inviting = InvitingLine(line, invite, list(asked))
        workers, folder, gone = how.workers, c.alignment, read_withdrawn(c.withdrawn).ids
        return align_as_label_holder(inviting, credentials, settings, ids, folder, workers, notify, gone), folder


def align_party(
    read: PartyFile,
    run: str,
    how: How,
    notify: Notify,
    agree: Agree = agree_to_all,
    shared: NatsConnection | None = None,
) -> tuple[Alignment, Path]:
    """A party's side; the alignment, and the folder that it is in now. `agree` may refuse a proposal."""
    p, credentials = read.party, read.credentials()
    settings = JoinSettings(name=run, most_ids=p.most_ids, patience=how.patience, more=how.more)
    ids = read_ids(p.table, p.id, text=p.text)
    with claimed(p.alignment), open_line(credentials, run, notify, shared=shared) as line:
        gone = read_withdrawn(p.withdrawn).ids
        made = align_as_party(line, credentials, settings, ids, p.alignment, how.workers, notify, agree, gone)
        return made, p.alignment


@dataclass
class InvitingLine:
    """The label holder's line, which invites again whoever has not joined yet."""

    line: LinkLine
    invite: Callable[[list[str]], None]
    missing: list[str]
    _asked: float = field(default=float("-inf"))

    def __post_init__(self) -> None:
        self.me = self.line.me

    def send(self, to: str, notice: Notice) -> None:
        """As the line does."""
        self.line.send(to, notice)

    def receive(self, timeout: float) -> Notice | None:
        """As the line does; before that, the parties that are missing are invited, now and then."""
        if self.missing and time.monotonic() - self._asked > ASK_AGAIN:
            self.invite(self.missing)
            self._asked = time.monotonic()
        notice = self.line.receive(timeout)
        if notice is not None and notice.kind == "JOIN" and notice.sender in self.missing:
            self.missing.remove(notice.sender)
        return notice
