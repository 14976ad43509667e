"""Calls to an HTTP service at a steady rate, whether or not earlier ones were answered: an open loop.

A call that is late to leave, because the connections are busy or this process is, counts from when it was due. So a
service that stalls for a second shows it in every call that should have come in that second. Written on plain asyncio
streams, because the generator shares the processors with what it measures.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

MOST_CONNECTIONS = 64
LIMIT = 2**24  # bytes of an answer


@dataclass(frozen=True)
class Target:
    """Where calls go, with which key, and whom to trust."""

    url: str
    key: str
    tls: ssl.SSLContext


@dataclass
class Answered:
    """What became of the calls: milliseconds from when each was due, by call; and those that got no answer."""

    due: list[float] = field(default_factory=list)  # seconds after the beginning
    milliseconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """The milliseconds within which so many of the answered calls were."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


class _Connection:
    """One connection that is used for one call after the other."""

    def __init__(self, target: Target) -> None:
        self.target, self._at = target, urlsplit(target.url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, body: bytes) -> tuple[int, bytes]:
        """Post a call; status and body. A connection that the other side closed meanwhile is opened again, once."""
        fresh = self._streams is None
        try:
            return await self._call(body)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            if fresh:
                raise
            return await self._call(body)

    async def _call(self, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            host, port = self._at.hostname or "", self._at.port or 443
            self._streams = await asyncio.open_connection(host, port, ssl=self.target.tls, limit=LIMIT)
        reader, writer = self._streams
        head = (
            f"POST /v1/predict HTTP/1.1\r\nHost: {self._at.netloc}\r\nAuthorization: Bearer {self.target.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(told.partition("content-length:")[2].partition("\r\n")[0])
        return int(told.split(" ", 2)[1]), await reader.readexactly(length)

    def close(self) -> None:
        """Leave at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def calls(target: Target, bodies: Sequence[bytes], rate: float, check: Callable[[bytes], str]) -> Answered:
    """Send the bodies, so many per second; `check` says what is wrong with an answer ("": nothing)."""
    found, free, began = Answered(), asyncio.Queue[_Connection](), time.perf_counter()
    for _ in range(MOST_CONNECTIONS):
        free.put_nowait(_Connection(target))

    async def one(at: float, body: bytes) -> None:
        connection = await free.get()
        try:
            status, told = await connection.call(body)
            wrong = check(told) if status == 200 else f"{status}: {told[:300].decode(errors='replace')}"
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            connection.close()
            wrong = f"{type(error).__name__}: {error}"
        finally:
            free.put_nowait(connection)
        if wrong:
            found.lost.append(f"due after {at:.2f} s: {wrong}")
        else:
            found.due.append(at)
            found.milliseconds.append((time.perf_counter() - began - at) * 1e3)

    under_way = []
    for number, body in enumerate(bodies):
        at = number / rate
        if (wait := began + at - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        under_way.append(asyncio.ensure_future(one(at, body)))
    await asyncio.gather(*under_way)
    while not free.empty():
        free.get_nowait().close()
    await asyncio.sleep(0)  # in which they are closed
    return found


def body_of(ids: Sequence[str], absent: str = "refuse") -> bytes:
    """A call for some ids."""
    return json.dumps({"ids": list(ids), "absent": absent}).encode()


def run_calls(target: Target, bodies: Sequence[bytes], rate: float, check: Callable[[bytes], str]) -> Answered:
    """The same from a thread that has no event loop."""
    return asyncio.run(calls(target, bodies, rate, check))
