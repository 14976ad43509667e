"""RunThread: one run of a process that serves many, in a thread with a link and a store of its own.

What goes wrong in it ends this run's thread and no other; it is told, and the run can be opened again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.engines.link import Link
from colonnade.engines.message import Notify, named
from colonnade.errors import ColonnadeError, MissingData, Unwritable
from colonnade.folder import claimed
from colonnade.live import Live

TICK = 0.5  # seconds after which a thread that waits for a message looks whether it is to end
PAUSES = {Unwritable: 60.0, MissingData: 2.0}  # seconds after which a run is tried again: its disk, its alignment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunPlace:
    """Where a run is kept, and whether its folder is to be claimed: that of the process itself is already."""

    folder: Path
    claim: bool = True


@dataclass(frozen=True)
class Means:
    """What all runs of a party's process have in common."""

    link: Callable[[str, Notify], AbstractContextManager[Link]]  # of a run
    setup: Callable[[], PartySetup]  # as the files say now
    policy: Callable[[], Policy]  # as it was read last
    turn: threading.Lock = field(default_factory=threading.Lock)  # one run at a time trains


class RunThread:
    """A party's part in one run, from its store or from nothing, until it is told to end."""

    def __init__(self, run: str, place: RunPlace, means: Means, notify: Notify) -> None:
        self.run, self.place, self.means = run, place, means
        self.failure, self._again, self._told = "", 0.0, ""
        self._ending = threading.Event()
        self._notify = named(run, Live(place.folder).telling(notify))
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, or begin again after a failure."""
        self.failure = ""
        self._thread = threading.Thread(target=self._work, name=f"run {self.run}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it listens."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def due(self) -> bool:
        """Whether it failed for a reason that may pass by itself, long enough ago."""
        return not self.alive and 0 < self._again < time.monotonic()

    def end(self) -> None:
        """Tell it to end when what it is doing is done."""
        self._ending.set()

    def ended(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        if self._thread is not None:
            self._thread.join(max(seconds, 0.0))
        return not self.alive

    # -- in the thread ------------------------------------------------------------------------

    def _work(self) -> None:
        self._again = 0.0
        try:
            with (
                claimed(self.place.folder) if self.place.claim else nullcontext(),
                self.means.link(self.run, self._notify) as link,
            ):
                self._serve(link, self.means.setup())
        except ColonnadeError as error:
            self.failure = str(error)
            self._again = next((time.monotonic() + s for kind, s in PAUSES.items() if isinstance(error, kind)), 0.0)
        except Exception as error:  # a fault of the program: it ends one run, not the process
            logger.exception("run %s", self.run)
            self.failure = f"{type(error).__name__}: {error}"
        if self.failure and self.failure != self._told and not self._ending.is_set():
            self._told = self.failure
            self._notify("failed", reason=self.failure)

    def _serve(self, link: Link, setup: PartySetup) -> None:
        # On a GPU a captured step allows nothing beside it, so there everything waits for its turn.
        alone = self.means.turn if setup.device != "cpu" else nullcontext()
        with alone:
            process = PartyProcess(self.place.folder, link, link.credentials, setup, self._notify)
        with closing(process.store):
            if setup.device == "cpu":
                process.turn = self.means.turn
            process.listen()
            while not self._ending.is_set():
                incoming = process.next(TICK)
                if incoming is None:
                    process.tidy()
                    continue
                self._follow_policy(process)
                with alone:
                    process.handle(incoming)
            process.tidy()

    def _follow_policy(self, process: PartyProcess) -> None:
        policy = self.means.policy()
        if process.member.setup.policy is not policy:
            process.member.setup = replace(process.member.setup, policy=policy)
