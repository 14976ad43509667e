"""The process of a party that serves: identity, table and policy once, and any number of runs beside each other.

    party/                  the process's folder; its lock keeps a second process out
    party/party.db          a run that `colonnade party` began there is served, too
    party/<run>/party.db    one folder per run: model, ledger, what was sent, the signed agreement

It opens every run that its folder has a store of, and whatever run the label holder invites it to. Each run has
a thread. One at a time trains, so that they share the processor round by round; predictions do not wait for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from colonnade.align.files import ABOUT
from colonnade.align.ids import read_ids
from colonnade.deploy.invitation import EXTENSION, INVITATION, RUNS, read_invitation
from colonnade.deploy.party import STORE
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import read_policy
from colonnade.deploy.settings import PartyConfig, read_party
from colonnade.deploy.start import connected, linked, party_setup, party_table, setup_of
from colonnade.deploy.withdrawal.start import WithdrawalAnswers
from colonnade.engines.connection import NatsConnection
from colonnade.engines.link import Link
from colonnade.engines.message import Incoming, Notify
from colonnade.errors import ColonnadeError, IdentityError, MissingData, RunError, WireError
from colonnade.fit import find_device
from colonnade.folder import claimed
from colonnade.identity.credentials import Credentials
from colonnade.service.aligning import Aligner
from colonnade.service.columns import SharedColumns
from colonnade.service.drifting import ColumnWatch
from colonnade.service.run_thread import TICK, Means, RunPlace, RunThread
from colonnade.store import peek

MOST_RUNS = 200  # that one process serves: each has a thread and a connection
PATIENCE = 20.0  # seconds that a local step may take to end when the process is told to


class PartyDaemon:
    """A party in all its runs; `reload` may be set by a signal."""

    def __init__(
        self, read: PartyConfig, credentials: Credentials, notify: Notify, reload: threading.Event | None = None
    ) -> None:
        self.folder, self.credentials, self._read = read.party.folder, credentials, read
        self.policy, self._notify = read_policy(read.party.policy), _one_at_a_time(notify)
        self._check()
        self.reload = reload or threading.Event()
        self.runs: dict[str, RunThread] = {}
        self.busy: list[str] = []  # at the end: runs whose threads still compute
        self._connection: NatsConnection | None = None  # of all runs, while it serves
        self._columns = SharedColumns()
        self._means = Means(self._link, self._setup_now, lambda: self.policy)
        self._rows = threading.Event()  # set by an alignment: runs that had no rows may begin
        self._aligner = Aligner(read, lambda: self.policy, self._notify, self._rows.set)

    def _check(self) -> None:
        """Say now what is wrong with the files; rows may still be aligned later."""
        try:
            party_setup(self._read)
        except MissingData:
            if (self._read.party.alignment / ABOUT).exists():
                raise
            p = self._read.party
            find_device(p.device, "party.device")
            read_ids(p.table, p.id, text=p.text)
            self._notify("waiting", note="for an alignment: until then there are no rows to train on")

    # -- what runs need -----------------------------------------------------------------------

    def _link(self, run: str, notify: Notify) -> AbstractContextManager[Link]:
        return linked(self.credentials, run, notify, self._connection)

    def _setup_now(self) -> PartySetup:
        """As the files say now: rows that were aligned after this process started are for runs that begin later."""
        table = party_table(self._read)
        columns = self._columns
        former = {digest: partial(columns.of, table.as_of(digest)) for digest in table.alignment.extends}
        return replace(
            setup_of(self._read, table), columns=partial(columns.of, table), former=former, policy=self.policy
        )

    # -- serving ------------------------------------------------------------------------------

    def serve(self) -> None:
        """Take part until interrupted; whatever interrupts, the runs end cleanly or lose nothing."""
        with (
            claimed(self.folder) as claim,
            connected(self.credentials, self._notify) as self._connection,
            linked(self.credentials, RUNS, self._notify, self._connection) as link,
            WithdrawalAnswers(self._read, self._notify, self._connection),
            ColumnWatch(self._read, self._notify),
        ):
            claim.note("still serving")
            try:
                for run, place in stored(self.folder):
                    self._open(run, place)
                link.listen()
                self._notify("serving", party=self.credentials.name, runs=sorted(self.runs))
                while True:
                    self.step(link, link.next(TICK))
            finally:
                self._end()

    def step(self, link: Link, incoming: Incoming | None) -> None:
        """Take an invitation, if one came; read the policy if that was asked for; open what failed and may work now."""
        if incoming is not None:
            self._take(link, incoming)
        reloaded = self.reload.is_set() or self._rows.is_set()
        self._rows.clear()
        if self.reload.is_set():
            self.reload.clear()
            self._read_policy()
        for thread in self.runs.values():
            if thread.due or (reloaded and thread.failure and not thread.alive):
                thread.start()

    def _take(self, link: Link, incoming: Incoming) -> None:
        try:
            invited = read_invitation(incoming, self.credentials)
            if invited.what != INVITATION:
                self._aligner.invited(invited.run, invited.what == EXTENSION, self._connection)
            elif invited.run not in self.runs:
                self._welcome(invited.run)
        except (WireError, IdentityError, RunError) as error:
            self._notify("refused", party=incoming.sender, reason=str(error))
            return link.refuse(incoming)
        return link.done([incoming])

    def _welcome(self, run: str) -> None:
        """Begin to listen to a run that this process did not know."""
        if len(self.runs) >= MOST_RUNS:
            raise RunError(
                f"an invitation to run {run!r}, and this process serves {MOST_RUNS} runs already; move folders of runs "
                f"that are not needed any more out of {str(self.folder)!r}, and start again"
            )
        self._notify("invited", run=run)
        self._open(run, RunPlace(self.folder / run))

    def _open(self, run: str, place: RunPlace) -> None:
        self.runs[run] = RunThread(run, place, self._means, self._notify)
        self.runs[run].start()

    def _read_policy(self) -> None:
        """The policy as it is now; one that cannot be read leaves the old one in force."""
        try:
            self.policy = read_policy(self._read.party.policy)
        except ColonnadeError as error:
            return self._notify("refused", reason=f"the policy stays as it was: {error}")
        return self._notify("policy", note="read again")

    def _end(self) -> None:
        """Let every run end; one that waits for the server is cut off, one that computes has a while."""
        for thread in self.runs.values():
            thread.end()
        if self._wait(2 * TICK):
            if self._connection is not None:
                self._connection.close()
            self.busy = self._wait(PATIENCE)
        if self.busy:  # nothing of it was sent, so nothing is lost
            self._notify("ending", runs=self.busy, note="in the middle of a step, which is done again after a start")

    def _wait(self, seconds: float) -> list[str]:
        """The runs that have not ended within so many seconds."""
        deadline = time.monotonic() + seconds
        return [run for run, thread in self.runs.items() if not thread.ended(deadline - time.monotonic())]


def stored(folder: Path) -> Iterator[tuple[str, RunPlace]]:
    """The runs that a folder has begun stores of: in itself, and in its subfolders by name."""
    own = _begun(folder)
    if own is not None:
        yield own, RunPlace(folder, claim=False)
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            run = _begun(place)
        except RunError:
            run = place.name  # whoever opens it says what is wrong
        if run == place.name and run != own:
            yield run, RunPlace(place)


def _begun(folder: Path) -> str | None:
    """The name of the run whose agreement a folder holds."""
    found = peek(folder / STORE, "$.agreement.proposal.run")
    return str(found[0]) if found else None


def _one_at_a_time(notify: Notify) -> Notify:
    """Runs tell of themselves from threads of their own: no line is cut by another."""
    lock = threading.Lock()

    def tell(event: str, **facts: object) -> None:
        with lock:
            notify(event, **facts)

    return tell


def open_daemon(
    config: Path, overrides: list[str] | None, notify: Notify, reload: threading.Event | None = None
) -> PartyDaemon:
    """The process of a party.toml; what is wrong with it is said now. `reload`: set when the policy is to be read."""
    read = read_party(config, overrides)
    return PartyDaemon(read, read.credentials(), notify, reload)
