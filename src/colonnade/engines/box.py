"""Box: a durable consumer of the server's stream, asked for messages without a pause.

Each message arrives as soon as the server has it. The server beats while it has a request. Silence: it was lost,
or there is no such consumer (yet); ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from colonnade.wire.container import LIMIT

PULL_EXPIRES = 20.0  # seconds that one request for messages stays with the server,
HEART_BEAT = 1.0  # and seconds between its signs of life meanwhile
RETRY = 0.3  # seconds between attempts while the server is away


@dataclass
class Box:
    """One consumer of one client. `nats` itself stays in engines/connection.py."""

    client: Any
    consumer: str  # <stream>.<name>
    batch: int  # messages that one request may bring
    deliver: Callable[[Any], None]
    missing: Callable[[], Awaitable[None]]  # called when there may be no such consumer
    trouble: tuple[type[BaseException], ...]  # errors that pass
    _left: int = 0  # messages that the last request may still bring
    _sign: asyncio.Event = field(default_factory=asyncio.Event)  # something came
    _patience: float = RETRY  # until the first sign of life

    async def open(self) -> None:
        """Subscribe to the answers, and keep one request with the server."""
        self._inbox = self.client.new_inbox()
        self._answers = await self.client.subscribe(self._inbox, cb=self._arrived, pending_bytes_limit=8 * LIMIT)
        self._task = asyncio.ensure_future(self._ask())

    async def close(self) -> None:
        """Ask for nothing more; what has been delivered and not acknowledged comes again to whoever asks next."""
        self._task.cancel()
        with contextlib.suppress(*self.trouble):
            await self._answers.unsubscribe()

    async def _arrived(self, message: Any) -> None:
        status = (message.headers or {}).get("Status")
        if status is None or message.reply.startswith("$JS.ACK."):  # whatever a sender writes into its headers
            self._left -= 1
            self.deliver(message)
        elif status != "100":  # 404, 408, 409, 503: the request is over; 100 is a heart beat
            self._left = 0
        self._patience = RETRY if status == "409" else 2.5 * HEART_BEAT  # 409: the consumer is being made anew
        self._sign.set()

    def pull_again(self) -> None:
        """Forget a request that may have been lost with the connection."""
        self._left = 0
        self._sign.set()

    async def _ask(self) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.consumer}"
        wanted = {"batch": self.batch, "expires": int(PULL_EXPIRES * 1e9), "idle_heartbeat": int(HEART_BEAT * 1e9)}
        while True:
            self._left = self.batch
            try:
                await self.client.publish(subject, json.dumps(wanted).encode(), reply=self._inbox)
                await self._while_it_lasts()
            except self.trouble:
                await asyncio.sleep(RETRY)

    async def _while_it_lasts(self) -> None:
        """Come back when the request has brought all it can, or nothing comes of it any more."""
        while self._left > 0:
            self._sign.clear()
            try:
                await asyncio.wait_for(self._sign.wait(), self._patience)
            except asyncio.TimeoutError:
                return await self.missing()
        return None
