"""A link without a server: the organisations are threads of one process, and the test says what becomes of messages."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colonnade.bench.organisations import Trial
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.predict import Prediction, Wish, predict_rows
from colonnade.engines.link import enclosed
from colonnade.engines.message import EVERYONE, Encryption, Incoming, Notify, Outgoing
from colonnade.errors import IdentityError, LinkError
from colonnade.federation import Federation
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR
from tests.federations import small
from tests.processes import LONG


@dataclass(frozen=True)
class Way:
    """One message on its way to one reader."""

    sender: str
    reader: str
    kind: str
    number: int


Carry = Callable[[Way], Sequence[float]]  # seconds until each copy of it arrives; (): it is lost


def at_once(way: Way) -> Sequence[float]:
    """Every message arrives, once, in order."""
    return (0.0,)


@dataclass
class Office:
    """Carries messages between links; `carry` says how. Whoever is not there yet finds its messages later."""

    carry: Carry = at_once
    parties: tuple[str, ...] = ()
    carried: list[tuple[Way, int]] = field(default_factory=list)  # and how many copies of it
    _boxes: dict[str, list[tuple[float, int, Incoming]]] = field(default_factory=lambda: defaultdict(list))
    _order: Iterator[int] = field(default_factory=itertools.count)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def outgoing(self, way: Way, incoming: Incoming) -> None:
        with self.changed:
            copies = self.carry(way)
            self.carried.append((way, len(copies)))
            for delay in copies:
                heapq.heappush(self._boxes[way.reader], (time.monotonic() + delay, next(self._order), incoming))
            self.changed.notify_all()

    def take(self, reader: str, timeout: float, closed: threading.Event) -> Incoming | None:
        deadline = time.monotonic() + timeout
        with self.changed:
            while not closed.is_set():
                box, now = self._boxes[reader], time.monotonic()
                if box and box[0][0] <= now:
                    return replace(heapq.heappop(box)[2], at=now)
                if now >= deadline:
                    return None
                self.changed.wait(min(deadline, box[0][0] if box else deadline) - now)
        raise LinkError("the link is closed")

    def count(self, kind: str, number: int, party: str) -> int:
        """How often such a message was sent by or to a party."""
        return sum((w.kind, w.number) == (kind, number) and party in (w.sender, w.reader) for w, _ in self.carried)

    def drop(self) -> None:
        """Forget what has not reached the parties."""
        with self.changed:
            for party in self.parties:
                self._boxes[party].clear()


class MemoryLink:
    """An `engines.link.Link` over an office. It keeps nothing: what is lost is asked for again."""

    def __init__(self, office: Office, credentials: Credentials, run: str, notify: Notify) -> None:
        self.office, self.credentials, self.run, self._notify = office, credentials, run, notify
        self.encryption: Encryption | None = None
        self.came_back, self.closed = threading.Event(), threading.Event()

    def lay(self, parties: Sequence[str], anew: bool = False) -> None:
        self.office.parties = tuple(parties)
        if anew:
            self.office.drop()

    def listen(self) -> None:
        """The office has a box for everybody."""

    def send(self, *to_send: Outgoing, again: bool = False, answers: Iterable[Incoming] = ()) -> None:
        me = self.credentials.name
        for outgoing in to_send:
            assert COORDINATOR in (outgoing.to, me), "a party speaks to the coordinator only"
            at, payload = enclosed(self, outgoing)
            for reader in self.office.parties if outgoing.to == EVERYONE else (outgoing.to,):
                way = Way(me, reader, outgoing.message.kind, outgoing.message.number)
                self.office.outgoing(way, Incoming(at, payload))

    def next(self, timeout: float) -> Incoming | None:
        incoming = self.office.take(self.credentials.name, timeout, self.closed)
        try:
            return incoming if incoming is None or self.encryption is None else self.encryption.decrypt(incoming)
        except IdentityError as error:
            self._notify("refused", reason=str(error))
            return None

    def done(self, received: Iterable[Incoming]) -> None:
        """Nothing is delivered again by itself."""

    def forget(self, incoming: Incoming) -> None:
        """Nothing is delivered again by itself."""

    def refuse(self, incoming: Incoming) -> None:
        """Nothing is delivered again by itself."""

    def purge(self) -> None:
        self.office.drop()

    def close(self) -> None:
        with self.office.changed:
            self.closed.set()
            self.office.changed.notify_all()


@dataclass(frozen=True)
class SmallTrial(Trial):
    """A made-up federation."""

    def federation(self) -> Federation:
        return small(**self.data)


@dataclass
class Room:
    """Organisations in one room: use it as a context manager, in which the parties are there."""

    trial: Trial
    office: Office = field(default_factory=Office)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    failures: list[BaseException] = field(default_factory=list)
    _there: dict[str, tuple[MemoryLink, threading.Thread]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, parties: Sequence[str], carry: Carry = at_once, **trial: Any) -> Room:
        """A room with certificates of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        make_trial(folder / "certs", parties)
        connections = {name: connection(folder / "certs", name) for name in (COORDINATOR, *parties)}
        return cls(SmallTrial(folder, "test", connections, **trial), Office(carry, tuple(parties)))

    def __enter__(self) -> Room:
        for name in self.trial.federation().names:
            self.arrive(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._there):
            self.leave(name)
        assert not self.failures, self.failures

    def arrive(self, name: str) -> None:
        """A party begins to serve, with whatever its folder holds."""
        link = self.link(name)

        def serve() -> None:
            try:
                setup, place = self.trial.setup(name), self.trial.place(name)
                process = PartyProcess(place, link, link.credentials, setup, self._notify(name))
                try:
                    process.serve()
                finally:
                    process.tidy()
                    process.store.close()
            except LinkError:
                return  # it left
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._there[name] = (link, thread)

    def leave(self, name: str) -> None:
        """A party ends where it is."""
        link, thread = self._there.pop(name)
        link.close()
        thread.join(LONG)
        assert not thread.is_alive()

    def link(self, name: str) -> MemoryLink:
        return MemoryLink(
            self.office, Credentials.load(self.trial.connections[name]), self.trial.run, self._notify(name)
        )

    def _notify(self, name: str) -> Notify:
        def notify(event: str, **facts: Any) -> None:
            self.events[name].append({"event": event, **facts})

        return notify

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.events[name] if entry["event"] == event]

    def train(self) -> Run:
        """The label holder's side of a run, in this thread."""
        link, place = self.link(COORDINATOR), self.trial.place(COORDINATOR)
        process = CoordinatorProcess(place, link, link.credentials, self.trial.undertaking(), self._notify(COORDINATOR))
        with contextlib.closing(process.store):
            return process.serve()

    def predict(self, wish: Wish) -> Prediction:
        return predict_rows(self.trial.place(COORDINATOR), self.link(COORDINATOR), wish, self._notify(COORDINATOR))


def connection(certs: Path, name: str) -> Connection:
    files = {"certificate": certs / f"{name}.crt", "key": certs / f"{name}.key", "authority": certs / "ca.crt"}
    return Connection(server="tls://localhost:4222", **files)
