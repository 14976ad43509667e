"""NatsLink: one organisation's end of one run, over its connection to the NATS server (`connection.py`, `box.py`).

Its subjects are the addresses of messages:

    run.<run>.all        coordinator -> everybody      in stream RUN_<run>, consumer <party>_all, one at a time
    run.<run>.down.<p>   coordinator -> one party      in stream RUN_<run>, consumer <party>_own
    run.<run>.up.<p>     party -> coordinator          plain; in the stream only where `keeps_answers`

Requests are kept on the server's disk until everybody who should read has read: a party may be away. A request is
delivered again until it is acknowledged, so a party acknowledges only after it has stored what it made of it.
Answers are passed on and not kept: whoever waits for one asks again, and a party repeats what it stored. (An
alignment cannot ask again and keeps them.) The claim on messages that are being worked on is renewed however long the
computing takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # the built-in one from Python 3.11 on
from typing import Any, TypeVar

from colonnade.engines.box import RETRY, Box
from colonnade.engines.connection import (
    ACK_WAIT,
    NO_STREAM,
    NOT_FOUND,
    OVERHEAD,
    TROUBLE,
    NatsConnection,
    told_of,
)
from colonnade.engines.link import enclosed
from colonnade.engines.message import Encryption, Incoming, Notify, Outgoing
from colonnade.errors import IdentityError, LinkError
from colonnade.identity.credentials import Credentials
from colonnade.identity.names import COORDINATOR
from colonnade.wire.container import LIMIT

__all__ = ["OVERHEAD", "NatsLink"]
T = TypeVar("T")
SLOWEST = 100_000  # bytes per second that a line may be slow without a message counting as lost
MOST_WAITING = 2**30  # bytes of one party that may wait to be looked at; more are dropped, and asked for again
RECORD = 2**25  # bytes: nats-server 2.9 stores a record of so many, and cannot read it any more; ours are shorter


class NatsLink:
    """A link for one run; every call blocks, retries while the server is away, and is safe to interrupt.

    Args:
        credentials: whose end it is.
        run: which run.
        notify: where events go.
        keeps_answers: the server keeps what parties send, too.
        shared: an open connection of this process, which stays open when the link is closed; None: one of its own.
    """

    def __init__(
        self,
        credentials: Credentials,
        run: str,
        notify: Notify,
        keeps_answers: bool = False,
        shared: NatsConnection | None = None,
    ) -> None:
        self.me, self.run, self.stream, self._keeps_answers = credentials.name, run, f"RUN_{run}", keeps_answers
        self.credentials, self._notify = credentials, notify
        self._received: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # bytes under each subject that nobody has looked at yet
        self._held: dict[int, Any] = {}  # came over this connection, not acknowledged yet; by identity
        self._boxes: list[Box] = []
        self._subscriptions: list[Any] = []
        self._parties: tuple[str, ...] | None = None  # set where this is the coordinator, which lays the stream
        # Ids are the stream's, not the sender's: one that could be guessed would let another take it first.
        self._id, self._resends = secrets.token_hex(8), itertools.count(1)
        self._laying: asyncio.Lock | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.encryption: Encryption | None = None  # set when the others' keys are known
        self.came_back = threading.Event()  # the connection was lost and is there again
        self._own = shared is None
        self._connection = shared or NatsConnection(credentials, notify)

    # -- opening ------------------------------------------------------------------------------

    def open(self) -> NatsLink:
        """Connect, unless the connection is shared; a server that is not up yet is waited for."""
        if self._own:
            self._connection.open()
        try:
            self._do(self._attach())
        except BaseException:
            self.close()
            raise
        return self

    async def _attach(self) -> None:
        self._connection.links.append(self)
        self._renewing = asyncio.ensure_future(self._renew())

    def lost(self) -> None:
        """A server that went back in time counts anew: what came before is not acknowledged, but comes again.

        Everything else that was on its way is sent again, too, by whoever waits for it.
        """
        self._held.clear()

    def back(self) -> None:
        """What was asked for over the old connection is asked for again."""
        self.came_back.set()
        for box in self._boxes:
            box.pull_again()

    def lay(self, parties: Sequence[str], anew: bool = False) -> None:
        """For the coordinator: make the run's stream and everybody's consumer, if they are not there.

        `anew`: and empty them, for a server that was killed, or whose disk went back in time, may have a consumer wait
        for ever for a message that is gone. What has not been answered must then be sent again.
        """
        self._parties = tuple(parties)
        self._do(self._lay_stream(anew))

    async def _lay_stream(self, anew: bool = False) -> None:
        self._laying = self._laying or asyncio.Lock()
        async with self._laying:
            while True:
                try:
                    return await self._lay_once(anew)
                except TROUBLE as error:
                    self._notify("server", trouble=f"cannot make the stream of the run yet: {told_of(error)}")
                    await asyncio.sleep(RETRY)

    async def _lay_once(self, anew: bool) -> None:
        start, parties = f"run.{self.run}", self._parties or ()
        boxes = {f"{p}_all": (f"{start}.all", 1) for p in parties}
        boxes |= {f"{p}_own": (f"{start}.down.{p}", 8) for p in parties}  # matched by number: order does not matter
        subjects = [f"{start}.all", f"{start}.down.*"]
        if self._keeps_answers:
            boxes[COORDINATOR] = (f"{start}.up.*", 4096)
            subjects.append(f"{start}.up.*")
        await self._connection.lay(self.stream, subjects, boxes, anew)

    # -- receiving ----------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to receive what is addressed to this process."""
        if self.me == COORDINATOR and not self._keeps_answers:
            return self._do(self._hear_answers())
        for name in [COORDINATOR] if self.me == COORDINATOR else [f"{self.me}_all", f"{self.me}_own"]:
            batch = 64 if self.me == COORDINATOR else 8
            box = Box(self._connected, f"{self.stream}.{name}", batch, self._deliver, self._missing, TROUBLE)
            self._boxes.append(box)
            self._do(box.open())
        return None

    async def _hear_answers(self) -> None:
        """One subscription per party: who sends too much, loses only messages of its own."""

        async def arrived(message: Any) -> None:
            if self._waiting[message.subject] > MOST_WAITING:
                return self._notify("refused", party=message.subject.rsplit(".", 1)[1], reason="it sends and sends")
            return self._put(message)

        for party in self._parties or ():
            subject = f"run.{self.run}.up.{party}"
            found = await self._connected.subscribe(subject, cb=arrived, pending_bytes_limit=8 * LIMIT)
            self._subscriptions.append(found)

    def next(self, timeout: float) -> Incoming | None:
        """The next message, decrypted, or None if none comes in time."""
        try:
            incoming = self._received.get(timeout=timeout)
            self._waiting[incoming.address] -= len(incoming.data)
            return incoming if self.encryption is None else self.encryption.decrypt(incoming)
        except queue.Empty:
            return None
        except IdentityError as error:
            self._notify("refused", party=incoming.sender, reason=str(error))
            self.refuse(incoming)
            return None

    def done(self, received: Iterable[Incoming]) -> None:
        """Acknowledge: what was made of these messages is stored."""
        self._close_received(received, lambda message: message.ack())

    def forget(self, incoming: Incoming) -> None:
        """Let go of a message without acknowledging it: it is delivered again by and by."""
        self._connection.call(self._held.pop, id(incoming._message), None)

    def refuse(self, incoming: Incoming) -> None:
        """Never deliver this one again."""
        self._close_received([incoming], lambda message: message.term())

    def _close_received(self, received: Iterable[Incoming], how: Callable[[Any], Awaitable[None]]) -> None:
        self._connection.spawn(self._close(received, how))

    async def _close(self, received: Iterable[Incoming], how: Callable[[Any], Awaitable[None]]) -> None:
        for message in [incoming._message for incoming in received]:
            if self._held.pop(id(message), None) is None:
                continue  # it came over a connection that was lost since
            with contextlib.suppress(*TROUBLE):  # an acknowledgement that is lost costs a repeated delivery
                await how(message)

    async def _renew(self) -> None:
        """Tell the server that the held messages are being worked on."""
        while True:
            await asyncio.sleep(ACK_WAIT / 3)
            for message in list(self._held.values()):
                with contextlib.suppress(*TROUBLE):
                    await message.in_progress()

    # -- sending ------------------------------------------------------------------------------

    def send(self, *to_send: Outgoing, again: bool = False, answers: Iterable[Incoming] = ()) -> None:
        """Send, and come back when the server has everything.

        `again` marks a deliberate repetition. `answers` are the messages that this answers: acknowledged on the way.
        """
        mark = f".{next(self._resends)}" if again else ""

        async def store_all() -> None:
            await asyncio.gather(*(self._store(outgoing, mark) for outgoing in to_send))

        kept = self.me == COORDINATOR or self._keeps_answers
        self._do(store_all() if kept else self._pass_on(to_send, answers))

    async def _store(self, outgoing: Outgoing, mark: str) -> None:
        """Publish until the server says that it has it. Its own memory of ids swallows what it got twice."""
        subject, payload = enclosed(self, outgoing)
        name = f"{outgoing.message.number}.{outgoing.message.kind}.{outgoing.part}.{outgoing.to}.{self._id}{mark}"
        jetstream, patience = self._connected.jetstream(), 2 + len(payload) / SLOWEST
        while True:
            try:
                await jetstream.publish(subject, payload, timeout=patience, headers={"Nats-Msg-Id": name})
                return
            except TROUBLE as error:
                if isinstance(error, NO_STREAM) and self._parties is not None:
                    self._notify("server", trouble="the stream of the run is gone; making it again")
                    await self._lay_stream()
                    continue
                self._notify("server", trouble=f"a message is not stored yet: {told_of(error)}")
                await asyncio.sleep(RETRY)

    async def _pass_on(self, to_send: Sequence[Outgoing], answers: Iterable[Incoming]) -> None:
        """Publish until the server has read it all; it keeps nothing, and if nobody listens, nobody gets it."""
        ready = [enclosed(self, outgoing) for outgoing in to_send]
        patience = 2 + sum(len(payload) for _, payload in ready) / SLOWEST
        while True:
            try:
                for subject, payload in ready:
                    await self._connected.publish(subject, payload)
                await self._close(answers, lambda message: message.ack())
                await self._connected.flush(patience)  # seconds, fractions are fine
                return
            except TROUBLE as error:
                self._notify("server", trouble=f"an answer is not under way yet: {told_of(error)}")
                while not self._connected.is_connected:
                    await asyncio.sleep(RETRY)

    # -- the end ------------------------------------------------------------------------------

    def purge(self) -> None:
        """For the coordinator: remove from the server's disk what is left of the run's messages."""
        self._do(self._until_answered(lambda jetstream: jetstream.purge_stream(self.stream)))

    def stream_state(self) -> dict[str, int]:
        """For the coordinator: messages and bytes that the server holds for the run."""
        info = self._do(self._until_answered(lambda jetstream: jetstream.stream_info(self.stream)))
        return {"messages": info.state.messages, "bytes": info.state.bytes} if info else {"messages": 0, "bytes": 0}

    async def _until_answered(self, ask: Callable[[Any], Awaitable[T]]) -> T | None:
        """Ask about the stream until the server answers; None if there is no such stream."""
        while True:
            try:
                return await ask(self._connected.jetstream(timeout=5))
            except NOT_FOUND:
                return None
            except TROUBLE as error:
                self._notify("server", trouble=f"no answer about the stream of the run yet: {told_of(error)}")
                await asyncio.sleep(RETRY)

    def close(self) -> None:
        """Leave; what was sent has been stored, what is held will be delivered again."""
        if self._own:
            self._connection.close()
        elif not self._connection.closed:
            with contextlib.suppress(*TROUBLE, LinkError, FutureTimeout):
                self._do(self._detach(), timeout=5)

    async def _detach(self) -> None:
        """Leave a connection that others go on using."""
        if self in self._connection.links:
            self._connection.links.remove(self)
        if self._renewing is not None:
            self._renewing.cancel()
        for box in self._boxes:
            await box.close()
        for subscription in self._subscriptions:
            with contextlib.suppress(*TROUBLE):
                await subscription.unsubscribe()

    @property
    def _connected(self) -> Any:
        return self._connection.client

    def _do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return self._connection.do(work, timeout)

    def _deliver(self, message: Any) -> None:
        """Called in the link's thread for every message of the stream."""
        self._held[id(message)] = message
        self._put(message)

    def _put(self, message: Any) -> None:
        self._waiting[message.subject] += len(message.data)
        self._received.put(Incoming(message.subject, message.data, message))

    async def _missing(self) -> None:
        """Called when the server may know no such consumer: only the coordinator can do something about it."""
        if self._parties is not None and self._connected.is_connected:
            await self._lay_stream()
