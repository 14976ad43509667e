"""From the configuration files to questions and answers about people who withdrew; and the threads that see to them."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from colonnade.align import messages as m
from colonnade.align.files import ABOUT, read_heading
from colonnade.config import build, read_toml
from colonnade.deploy.line import open_line
from colonnade.deploy.sections import CoordinatorFile, PartyFile
from colonnade.deploy.withdrawal.exchange import answer_while, ask_all
from colonnade.deploy.withdrawal.side import Side, tell_damage
from colonnade.deploy.withdrawal.waiting import WithdrawalLimit
from colonnade.engines.connection import NatsConnection
from colonnade.engines.message import Notify
from colonnade.errors import ColonnadeError, ConfigError, RunError
from colonnade.folder import claimed
from colonnade.record import STORE
from colonnade.withdrawn import read_withdrawn, stamp

PARTY_STORE = "party.db"
LOCK = ".forget"  # beside the list: one process of the label holder asks at a time
AT_START = 2.0  # seconds that a training waits for parties that do not say who withdrew: they refuse such rows anyway
EVERY = 60.0  # seconds between two questions of a label holder that serves
PATIENCE = 10.0  # seconds for the answers to one of them
TICK = 1.0  # seconds between two looks at the list
AGAIN = 30.0  # seconds after which a side that failed tries again

logger = logging.getLogger(__name__)


def side_of(read: PartyFile | CoordinatorFile) -> Side:
    """Where an organisation keeps what it knows."""
    if isinstance(read, PartyFile):
        p = read.party
        return Side(p.withdrawn, p.alignment, p.folder, PARTY_STORE, partial(limit_in, p.policy))
    c = read.coordinator
    return Side(c.withdrawn, c.alignment, c.folder, STORE, lambda: read.withdrawal)


def limit_in(policy: Path | None) -> WithdrawalLimit:
    """How many people others may withdraw at a party, as its policy file says now; nobody, where it cannot be read."""
    try:
        said = read_toml(policy).get("withdrawal", {}) if policy is not None else {}
        return build(WithdrawalLimit, said if isinstance(said, Mapping) else {"withdrawal": said}, "withdrawal")
    except ConfigError:
        return WithdrawalLimit(most_rows=0, most_share=0.0)


def ask_parties(
    read: CoordinatorFile, notify: Notify, patience: float, shared: NatsConnection | None = None
) -> Mapping[str, str]:
    """Ask all parties who withdrew, and tell them; by party "", or why it has not confirmed.

    One process of the label holder asks at a time; another one waits for it.
    """
    side, c = side_of(read), read.coordinator
    credentials, name = read.credentials(), read_heading(side.alignment).name
    with (
        claimed(side.file.with_name(LOCK), patience=patience),
        open_line(credentials, name, notify, c.parties, "forget", shared) as line,
    ):
        try:
            return ask_all(side, line, credentials, c.parties, notify, patience)
        finally:
            line.clear()


def hear_at_start(read: CoordinatorFile, notify: Notify, shared: NatsConnection) -> bool:
    """Before a training: who withdrew at parties that are there, and whether the label holder did not know of some.

    What is not heard now, the parties refuse by themselves.
    """
    side = side_of(read)
    before = read_withdrawn(side.file).ids
    tell_damage(side.mark(), notify)
    try:
        ask_parties(read, notify, AT_START, shared)
    except RunError as error:  # another process of the label holder asks, or the list cannot be written now
        notify("warning", reason=str(error))
    return read_withdrawn(side.file).ids != before


def stop_for(side: Side, split: Callable[[], None]) -> Callable[[], None]:
    """A check to be made with every round: `split` raises, if the list has changed and names rows of the run."""
    seen = stamp(side.file)

    def check() -> None:
        nonlocal seen
        if (now := stamp(side.file)) != seen:
            split()
            seen = now

    return check


class WithdrawalThread(ABC):
    """A thread that sees to people who withdrew while a process does other things; trouble is told, and tried again."""

    def __init__(self, notify: Notify) -> None:
        self._notify, self._ending, self._told = notify, threading.Event(), ""
        self._damaged: tuple[str, ...] = ()  # runs that could not be marked, as they were told
        self._thread = threading.Thread(target=self._work, name="people who withdrew", daemon=True)

    def __enter__(self) -> WithdrawalThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(2 * TICK)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                self._step()
                self._told = ""
            except ColonnadeError as error:
                if str(error) != self._told and not self._ending.is_set():
                    self._notify("warning", reason=f"people who withdrew: {error}")
                self._told = str(error)
                self._ending.wait(AGAIN)
            except Exception:  # a fault of the program: people who withdraw must be heard for as long as this runs
                logger.exception("people who withdrew")
                self._ending.wait(AGAIN)

    def _mark(self, side: Side) -> None:
        """Mark the models; those that cannot be are told when they change, and tried again the next time."""
        marked = [one for one in side.mark() if one.damage]
        damaged = tuple(map(str, marked))
        if damaged != self._damaged:
            tell_damage(marked, self._notify)
        self._damaged = damaged

    @abstractmethod
    def _step(self) -> None:
        """Whatever is to be done now; comes back soon if that is nothing."""


class WithdrawalAnswers(WithdrawalThread):
    """A party's: it answers the label holder, as soon as there is an alignment."""

    def __init__(self, read: PartyFile, notify: Notify, shared: NatsConnection | None = None) -> None:
        super().__init__(notify)
        self._read, self._side, self._shared = read, side_of(read), shared
        self._looked, self._seen = float("-inf"), stamp(self._side.file)  # when, and at which list

    def _step(self) -> None:
        about = self._side.alignment / ABOUT
        if not about.exists():
            self._ending.wait(TICK)
            return
        self._mark(self._side)  # a folder that was put back from a copy has no mark
        name, credentials = read_heading(self._side.alignment).name, self._read.credentials()
        aligned = stamp(about)
        with open_line(credentials, name, _quiet(self._notify), what="forget", shared=self._shared) as line:
            sender = m.Sender(line, credentials, name)
            answer_while(self._side, sender, self._notify, lambda: stamp(about) == aligned and self._goes_on())

    def _goes_on(self) -> bool:
        """Whether it answers on; now and then it marks models, if some could not be or the list has changed."""
        if time.monotonic() > self._looked + EVERY:
            self._looked, seen = time.monotonic(), stamp(self._side.file)
            if self._damaged or seen != self._seen:
                self._seen = seen
                self._mark(self._side)
        return not self._ending.is_set()


class WithdrawalQuestions(WithdrawalThread):
    """A label holder's: it asks at the start, when its list has changed, and now and then."""

    def __init__(self, read: CoordinatorFile, notify: Notify) -> None:
        super().__init__(notify)
        self._read, self._side = read, side_of(read)
        self._asked, self._seen = float("-inf"), stamp(self._side.file)

    def _step(self) -> None:
        seen = stamp(self._side.file)
        if not (self._side.alignment / ABOUT).exists() or (
            seen == self._seen and time.monotonic() - self._asked < EVERY
        ):
            self._ending.wait(TICK)
            return
        self._mark(self._side)
        ask_parties(self._read, _quiet(self._notify), PATIENCE)
        self._asked, self._seen = time.monotonic(), stamp(self._side.file)


def _quiet(notify: Notify) -> Notify:
    """Waiting for the server is told by whoever cannot go on without it."""

    def tell(event: str, **facts: object) -> None:
        if event not in ("server", "disconnected", "reconnected"):
            notify(event, **facts)

    return tell
