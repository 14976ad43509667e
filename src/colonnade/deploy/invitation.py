"""Invitation: how a party that serves many runs hears of one that it does not know yet.

    run._runs.down.<party>    coordinator -> party    "there is a run of this name, with these parties"; signed
                                                      or: an alignment, or an extension of one

No run is called `_runs` (names have no underscore), so the server's rules for runs hold for it as they are: only the
coordinator may send there, and each party reads its own. An invitation asks for nothing but to listen; what is asked
for stands in the proposal, which the party finds in the run itself. It is repeated with every proposal that nobody
answered, so none is ever waited for, and a party that serves one run only (`colonnade party`) need not read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.engines.link import Link
from colonnade.engines.message import Incoming, Outgoing
from colonnade.errors import WireError
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.notice import Notice, canonical, read_notice

RUNS = "_runs"  # the link of invitations; no run is called so
INVITATION = "INVITATION"  # to a run
ALIGNMENT, EXTENSION = "ALIGNMENT", "EXTENSION"  # to an alignment of a run's name
RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")  # as in `align.settings.Name`: also the name of a folder


@dataclass
class Invitations:
    """The label holder's invitations to one run, over a link named `RUNS`."""

    link: Link
    run: str
    parties: tuple[str, ...]
    what: str = INVITATION
    _laid: bool = False

    def __call__(self, to: Sequence[str]) -> None:
        """Invite some of the parties, in place of all invitations that have not been read."""
        body = {"what": self.what, "run": self.run, "parties": list(self.parties)}
        facts = {"body": body, "signature": self.link.credentials.sign(canonical(body))}
        notice = Notice(RUNS, 0, INVITATION, COORDINATOR, facts)
        if not self._laid:
            self.link.lay(self.parties)
            self._laid = True
        self.link.purge()  # of runs that still wait for somebody, invitations come again by themselves
        self.link.send(*(Outgoing(party, notice) for party in to), again=True)


@dataclass(frozen=True)
class Invited:
    """What this process is invited to: a run of this name, or an alignment for one."""

    what: str
    run: str


def read_invitation(incoming: Incoming, me: Credentials) -> Invited:
    """What the label holder invites this process to.

    Raises:
        WireError: it is no invitation, or not to this party.
        IdentityError: the coordinator did not sign it.
    """
    notice = read_notice(incoming.data)
    body, signature = notice.facts.get("body"), notice.facts.get("signature")
    if notice.kind != INVITATION or not isinstance(body, dict) or not isinstance(signature, dict):
        raise WireError(f"a message {notice.kind[:32]!r} that is no invitation")
    me.verify(canonical(body), signature, COORDINATOR)
    what, run, parties = body.get("what"), body.get("run"), body.get("parties")
    if what not in (INVITATION, ALIGNMENT, EXTENSION) or not isinstance(run, str) or not RUN.fullmatch(run):
        raise WireError(f"an invitation to {run!r:.64}, which is no name of a run")
    if not isinstance(parties, list) or me.name not in parties:
        raise WireError(f"an invitation to run {run!r} whose parties {me.name!r} is not among")
    return Invited(what, run)
