"""NatsConnection: a process's connection to the NATS server. The only file that imports `nats`.

It lives in a thread of its own: it answers the server's pings and connects again after a loss, however long the
computing takes. The links of any number of runs share it (`nats.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout  # the built-in one from Python 3.11 on
from typing import Any, Protocol, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StorageType, StreamConfig

from colonnade.engines.box import RETRY
from colonnade.engines.message import Notify
from colonnade.errors import LinkError
from colonnade.identity.credentials import Credentials, why_shut_out
from colonnade.wire.container import LIMIT

T = TypeVar("T")
ACK_WAIT = 3.0  # seconds after which an unacknowledged message is delivered again
# Seconds after which connecting begins anew: nats-py waits for ever for a connection to close whose TLS handshake was
# cut off, as that of a server which was killed just then.
ATTEMPT = 10.0
TROUBLE = (nats.errors.Error, asyncio.TimeoutError, OSError)  # nats' JetStream errors are among the first
NO_STREAM, NOT_FOUND = nats.js.errors.NoStreamResponseError, nats.js.errors.NotFoundError
OVERHEAD = 2**17  # bytes that encryption, a signature with its certificates, and headers may add to a message


class Attached(Protocol):
    """A link over the connection; both are called in the connection's thread."""

    def lost(self) -> None:
        """The connection is lost, and with it whatever was on its way."""
        ...

    def back(self) -> None:
        """It is there again."""
        ...


class NatsConnection:
    """One connection of one process; waits for a server that is away, and is safe to interrupt."""

    def __init__(self, credentials: Credentials, notify: Notify) -> None:
        self.credentials, self._notify = credentials, notify
        self.links: list[Attached] = []
        self._client: Client | None = None
        self.closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="connection", daemon=True)
        self._thread.start()

    def open(self) -> NatsConnection:
        """Connect; waits for a server that is not up yet, refuses one that does not let this process in."""
        try:
            self.do(self._connect())
        except BaseException:
            self.close()
            raise
        return self

    async def _connect(self) -> None:
        failed: asyncio.Future[str] = self._loop.create_future()
        connection, told, me = self.credentials.connection, False, self.credentials.name

        async def on_error(error: Exception) -> None:
            nonlocal told
            reason = why_shut_out(error)
            if reason and not failed.done():
                failed.set_result(reason)
            elif not told or self._client is not None:
                told = True  # once while connecting: the attempts go on silently
                self._notify("server", trouble=told_of(error))

        async def on_off() -> None:
            for link in list(self.links):
                link.lost()
            client._pending, client._pending_data_size = [], 0
            if not self.closed:
                self._notify("disconnected")

        connecting: asyncio.Future[None] | None = None
        while connecting is None or not (connecting.done() or failed.done()):
            await _give_up(connecting)
            client = Client()
            connecting = asyncio.ensure_future(
                client.connect(
                    connection.server, tls=self.credentials.tls(), name=me, inbox_prefix=f"_INBOX_{me}",
                    reconnect_time_wait=RETRY,  # type: ignore[arg-type]  # sleeps so long; fractions are fine
                    max_reconnect_attempts=-1, connect_timeout=5, pending_size=4 * LIMIT, ping_interval=5,
                    max_outstanding_pings=3, error_cb=on_error, disconnected_cb=on_off, reconnected_cb=self._on_again,
                )
            )  # fmt: skip
            await asyncio.wait([connecting, failed], timeout=ATTEMPT, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if not connecting.done():
            await _give_up(connecting)
            raise LinkError(f"the server {connection.server} does not let {me!r} in: {failed.result()}")
        connecting.result()
        self._client = client
        if client.max_payload < LIMIT + OVERHEAD:
            raise LinkError(
                f"the server {connection.server} takes messages of {client.max_payload:,} bytes; needed "
                f"{LIMIT + OVERHEAD:,}: set max_payload as `colonnade nats-config` does"
            )

    async def _on_again(self) -> None:
        self._notify("reconnected")
        for link in list(self.links):
            link.back()

    @property
    def client(self) -> Client:
        """The client, once it is connected."""
        if self._client is None:
            raise LinkError("the link is not open")
        return self._client

    @property
    def up(self) -> bool:
        """Whether the server can be reached right now."""
        return self._client is not None and not self.closed and bool(self._client.is_connected)

    async def lay(self, stream: str, subjects: Sequence[str], boxes: Mapping[str, tuple[str, int]], anew: bool) -> None:
        """Make a stream and its consumers (name: subject, and how many messages it may have out), if need be.

        `anew`: and empty them.
        """
        jetstream = self.client.jetstream(timeout=5)
        await jetstream.add_stream(
            StreamConfig(
                name=stream, subjects=list(subjects), retention=RetentionPolicy.INTEREST,
                storage=StorageType.FILE, duplicate_window=120, max_msg_size=LIMIT + OVERHEAD,
            )
        )  # fmt: skip
        if anew:
            await jetstream.purge_stream(stream)  # numbers go on: an acknowledgement on its way hits nothing new
        for name, (subject, pending) in boxes.items():
            if anew:
                with contextlib.suppress(NOT_FOUND):
                    await jetstream.delete_consumer(stream, name)
            config = ConsumerConfig(
                durable_name=name, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT,
                max_deliver=-1, max_ack_pending=pending, deliver_policy=DeliverPolicy.ALL,
            )  # fmt: skip
            await jetstream.add_consumer(stream, config)

    # -- from other threads -------------------------------------------------------------------

    def do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the connection's thread and wait; an interruption here cancels it there."""
        if self.closed:
            work.close()
            raise LinkError("the link is closed")
        return self._do(work, timeout)

    def _do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except CancelledError:  # another thread closed the connection meanwhile
            raise LinkError("the link is closed") from None
        except BaseException:
            future.cancel()
            raise

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine there, and do not wait."""
        if self.closed:  # whatever it was to tell the server, the server finds out by itself
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, what: Any, *arguments: Any) -> None:
        """Call a function there, and do not wait."""
        self._loop.call_soon_threadsafe(what, *arguments)

    def close(self) -> None:
        """Leave; what was sent has been stored, what is held will be delivered again."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(*TROUBLE, LinkError, FutureTimeout):
            self._do(self._leave(), timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()

    async def _leave(self) -> None:
        if self._client is not None:
            with contextlib.suppress(*TROUBLE):
                await asyncio.wait_for(self._client.flush(1), 2)
            with contextlib.suppress(*TROUBLE, AttributeError):  # nats-py writes to a TLS line that has gone already
                await self._client.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _give_up(connecting: asyncio.Future[None] | None) -> None:
    if connecting is not None:
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError, *TROUBLE):
            await connecting


def told_of(error: BaseException) -> str:
    """An error of the connection in a few words."""
    return (str(error) or type(error).__name__)[:200]
