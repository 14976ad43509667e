"""NatsLink: one organisation's connection to the NATS server. The only file that knows NATS, with `box.py`.

Its subjects are the addresses of messages:

    run.<run>.all        coordinator -> everybody      in stream RUN_<run>, consumer <party>_all, one at a time
    run.<run>.down.<p>   coordinator -> one party      in stream RUN_<run>, consumer <party>_own
    run.<run>.up.<p>     party -> coordinator          plain; in the stream only where `keeps_answers`

Requests are kept on the server's disk until everybody who should read has read: a party may be away. A request is
delivered again until it is acknowledged, so a party acknowledges only after it has stored what it made of it.
Answers are passed on and not kept: whoever waits for one asks again, and a party repeats what it stored. (An
alignment cannot ask again and keeps them.) The connection lives in a thread of its own: it answers the server's
pings and renews the claim on messages that are being worked on, however long the computing takes.
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

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StorageType, StreamConfig

from colonnade.engines.box import RETRY, Box
from colonnade.engines.link import enclosed
from colonnade.engines.message import Encryption, Incoming, Notify, Outgoing
from colonnade.errors import IdentityError, LinkError
from colonnade.identity.credentials import Credentials, why_shut_out
from colonnade.identity.names import COORDINATOR
from colonnade.wire.container import LIMIT

T = TypeVar("T")
ACK_WAIT = 3.0  # seconds after which an unacknowledged message is delivered again
# Seconds after which connecting begins anew: nats-py waits for ever for a connection to close whose TLS handshake was
# cut off, as that of a server which was killed just then.
ATTEMPT = 10.0
SLOWEST = 100_000  # bytes per second that a line may be slow without a message counting as lost
TROUBLE = (nats.errors.Error, asyncio.TimeoutError, OSError)  # nats' JetStream errors are among the first
MOST_WAITING = 2**30  # bytes of one party that may wait to be looked at; more are dropped, and asked for again
OVERHEAD = 2**17  # bytes that encryption, a signature with its certificates, and headers may add to a message
RECORD = 2**25  # bytes: nats-server 2.9 stores a record of so many, and cannot read it any more; ours are shorter


class NatsLink:
    """A connection for one run; every call blocks, retries while the server is away, and is safe to interrupt."""

    def __init__(self, credentials: Credentials, run: str, notify: Notify, keeps_answers: bool = False) -> None:
        self.me, self.run, self.stream, self._keeps_answers = credentials.name, run, f"RUN_{run}", keeps_answers
        self.credentials, self._notify = credentials, notify
        self._received: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # bytes under each subject that nobody has looked at yet
        self._held: dict[int, Msg] = {}  # came over this connection, not acknowledged yet; by identity
        self._boxes: list[Box] = []
        self._parties: tuple[str, ...] | None = None  # set where this is the coordinator, which lays the stream
        # Ids are the stream's, not the sender's: one that could be guessed would let another take it first.
        self._id, self._resends = secrets.token_hex(8), itertools.count(1)
        self._laying: asyncio.Lock | None = None
        self._client: Client | None = None
        self._closed = False
        self.encryption: Encryption | None = None  # set when the others' keys are known
        self.came_back = threading.Event()  # the connection was lost and is there again
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._thread.start()

    # -- opening ------------------------------------------------------------------------------

    def open(self) -> NatsLink:
        """Connect; waits for a server that is not up yet, refuses one that does not let this process in."""
        try:
            self._do(self._connect())
            self._spawn(self._renew())
        except BaseException:
            self.close()
            raise
        return self

    async def _connect(self) -> None:
        failed: asyncio.Future[str] = self._loop.create_future()
        connection, told = self.credentials.connection, False

        async def on_error(error: Exception) -> None:
            nonlocal told
            reason = why_shut_out(error)
            if reason and not failed.done():
                failed.set_result(reason)
            elif not told or self._client is not None:
                told = True  # once while connecting: the attempts go on silently
                self._notify("server", trouble=_told(error))

        async def on_off() -> None:
            # A server that went back in time counts anew: what came before is not acknowledged, but comes again.
            # Everything else that was on its way is sent again, too, by whoever waits for it.
            self._held.clear()
            client._pending, client._pending_data_size = [], 0
            if not self._closed:
                self._notify("disconnected")

        connecting: asyncio.Future[None] | None = None
        while connecting is None or not (connecting.done() or failed.done()):
            await _give_up(connecting)
            client = Client()
            connecting = asyncio.ensure_future(
                client.connect(
                    connection.server, tls=self.credentials.tls(), name=self.me, inbox_prefix=f"_INBOX_{self.me}",
                    reconnect_time_wait=RETRY,  # type: ignore[arg-type]  # sleeps so long; fractions are fine
                    max_reconnect_attempts=-1, connect_timeout=5, pending_size=4 * LIMIT, ping_interval=5,
                    max_outstanding_pings=3, error_cb=on_error, disconnected_cb=on_off, reconnected_cb=self._on_again,
                )
            )  # fmt: skip
            await asyncio.wait([connecting, failed], timeout=ATTEMPT, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if not connecting.done():
            await _give_up(connecting)
            raise LinkError(f"the server {connection.server} does not let {self.me!r} in: {failed.result()}")
        connecting.result()
        self._client = client
        if client.max_payload < LIMIT + OVERHEAD:
            raise LinkError(
                f"the server {connection.server} takes messages of {client.max_payload:,} bytes; needed "
                f"{LIMIT + OVERHEAD:,}: set max_payload as `colonnade nats-config` does"
            )

    async def _on_again(self) -> None:
        self.came_back.set()
        self._notify("reconnected")
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
                    self._notify("server", trouble=f"cannot make the stream of the run yet: {_told(error)}")
                    await asyncio.sleep(RETRY)

    async def _lay_once(self, anew: bool) -> None:
        jetstream, start, parties = self._connected.jetstream(timeout=5), f"run.{self.run}", self._parties or ()
        boxes = {f"{p}_all": (f"{start}.all", 1) for p in parties}
        boxes |= {f"{p}_own": (f"{start}.down.{p}", 8) for p in parties}  # matched by number: order does not matter
        subjects = [f"{start}.all", f"{start}.down.*"]
        if self._keeps_answers:
            boxes[COORDINATOR] = (f"{start}.up.*", 4096)
            subjects.append(f"{start}.up.*")
        await jetstream.add_stream(
            StreamConfig(
                name=self.stream, subjects=subjects, retention=RetentionPolicy.INTEREST,
                storage=StorageType.FILE, duplicate_window=120, max_msg_size=LIMIT + OVERHEAD,
            )
        )  # fmt: skip
        if anew:
            await jetstream.purge_stream(self.stream)  # numbers go on: an acknowledgement on its way hits nothing new
        for name, (subject, pending) in boxes.items():
            if anew:
                with contextlib.suppress(nats.js.errors.NotFoundError):
                    await jetstream.delete_consumer(self.stream, name)
            config = ConsumerConfig(
                durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT,
                max_deliver=-1, max_ack_pending=pending, deliver_policy=DeliverPolicy.ALL,
            )  # fmt: skip
            await jetstream.add_consumer(self.stream, config)

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

        async def arrived(message: Msg) -> None:
            if self._waiting[message.subject] > MOST_WAITING:
                return self._notify("refused", party=message.subject.rsplit(".", 1)[1], reason="it sends and sends")
            return self._put(message)

        for party in self._parties or ():
            await self._connected.subscribe(f"run.{self.run}.up.{party}", cb=arrived, pending_bytes_limit=8 * LIMIT)

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
        self._loop.call_soon_threadsafe(self._held.pop, id(incoming._message), None)

    def refuse(self, incoming: Incoming) -> None:
        """Never deliver this one again."""
        self._close_received([incoming], lambda message: message.term())

    def _close_received(self, received: Iterable[Incoming], how: Callable[[Msg], Awaitable[None]]) -> None:
        self._spawn(self._close(received, how))

    async def _close(self, received: Iterable[Incoming], how: Callable[[Msg], Awaitable[None]]) -> None:
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
                if isinstance(error, nats.js.errors.NoStreamResponseError) and self._parties is not None:
                    self._notify("server", trouble="the stream of the run is gone; making it again")
                    await self._lay_stream()
                    continue
                self._notify("server", trouble=f"a message is not stored yet: {_told(error)}")
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
                return await self._connected.flush(patience)  # type: ignore[arg-type]  # seconds, fractions are fine
            except TROUBLE as error:
                self._notify("server", trouble=f"an answer is not under way yet: {_told(error)}")
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

    async def _until_answered(self, ask: Callable[[JetStreamContext], Awaitable[T]]) -> T | None:
        """Ask about the stream until the server answers; None if there is no such stream."""
        while True:
            try:
                return await ask(self._connected.jetstream(timeout=5))
            except nats.js.errors.NotFoundError:
                return None
            except TROUBLE as error:
                self._notify("server", trouble=f"no answer about the stream of the run yet: {_told(error)}")
                await asyncio.sleep(RETRY)

    def close(self) -> None:
        """Leave; what was sent has been stored, what is held will be delivered again."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(*TROUBLE, FutureTimeout):
            self._do(self._leave(), timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()

    async def _leave(self) -> None:
        if self._client is not None:
            with contextlib.suppress(*TROUBLE):
                await asyncio.wait_for(self._client.flush(1), 2)
            await self._client.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise LinkError("the link is not open")
        return self._client

    def _do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the link's thread and wait; an interruption here cancels it there."""
        if self._loop.is_closed():
            work.close()
            raise LinkError("the link is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._closed:  # whatever it was to tell the server, the server finds out by itself
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def _deliver(self, message: Msg) -> None:
        """Called in the link's thread for every message of the stream."""
        self._held[id(message)] = message
        self._put(message)

    def _put(self, message: Msg) -> None:
        self._waiting[message.subject] += len(message.data)
        self._received.put(Incoming(message.subject, message.data, message))

    async def _missing(self) -> None:
        """Called when the server may know no such consumer: only the coordinator can do something about it."""
        if self._parties is not None and self._connected.is_connected:
            await self._lay_stream()


async def _give_up(connecting: asyncio.Future[None] | None) -> None:
    if connecting is not None:
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError, *TROUBLE):
            await connecting


def _told(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
