"""HttpServer: an HTTP server in a thread, for as long as a block of code runs. The only file that imports `uvicorn`.

It listens before the block begins, so an address that is taken is said at once, and stops listening when it ends.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakSet

from colonnade.errors import ConfigError
from colonnade.extras import need

HANDSHAKE = 10.0  # seconds for a TLS handshake: enough for three losses of a packet in a row (1 + 2 + 4 s)
HEAD = 20.0  # seconds in which the head of a call has to arrive: after a connection was made, or after an answer
BODY = 60.0  # seconds in which the rest of a call has to follow its head
PATIENCE = 10.0  # seconds that the server may take to begin, and its open calls to end


@dataclass(frozen=True)
class Address:
    """Where a server listens, and with which certificate; port 0: any that is free."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    @property
    def scheme(self) -> str:
        """https where there is a certificate."""
        return "http" if self.certificate is None else "https"


class HttpServer:
    """Serves an ASGI application: `with HttpServer(app, address) as server: ... server.url`."""

    def __init__(self, app: Any, address: Address) -> None:
        uvicorn = need("uvicorn", extra="serve", purpose="Serving pages")
        self.address = address
        self._socket = _bound(address)
        host, port = self._socket.getsockname()[:2]
        self.url = f"{address.scheme}://{f'[{host}]' if ':' in host else host}:{port}"  # with the port that it got
        config = uvicorn.Config(
            app,
            loop=f"{__name__}:{Loop.__name__}",
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
            timeout_graceful_shutdown=int(PATIENCE),
            server_header=False,
            proxy_headers=False,  # `proxies.py` reads them, of those that the settings trust
            http=_bounded(),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> HttpServer:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise ConfigError(f"no page can be served at {self.url}: the server did not begin")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(2 * PATIENCE)
        self._socket.close()


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own loop, which asks `Door` for its connections, and a TLS handshake that has to end in time.

    asyncio waits for a minute where it is not told, and uvicorn has no setting for it.
    """

    async def create_server(self, *args: Any, **more: Any) -> asyncio.Server:
        """As asyncio does, with a time for the handshake."""
        if more.get("ssl") is not None:
            more["ssl_handshake_timeout"] = HANDSHAKE
        return await super().create_server(*args, **more)


class Door(socket.socket):
    """A socket that listens, with so many connections at a time; what comes beyond them is closed at once.

    They are counted before a TLS handshake begins: whoever never ends it holds a file of the process, too.
    """

    def __init__(self, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._taken = WeakSet[socket.socket]()

    def accept(self) -> tuple[socket.socket, Any]:
        """A connection; `ConnectionAbortedError`, which asyncio passes over, for one too many."""
        taken, where = super().accept()
        if sum(one.fileno() >= 0 for one in self._taken) >= _most_connections():
            taken.close()
            raise ConnectionAbortedError("too many connections")
        self._taken.add(taken)
        return taken, where


def _bound(address: Address) -> socket.socket:
    made = Door(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except OSError as error:
        made.close()
        why = error.strerror or str(error)
        raise ConfigError(f"cannot listen at {address.host}, port {address.port} ({why}); choose another") from None
    return made


def _bounded() -> Any:
    """Connections whose calls arrive in time: whoever keeps half a call back is cut off, or it would hold them all."""
    h11 = need("uvicorn.protocols.http.h11_impl", extra="serve", purpose="Serving pages")
    owed = {h11.h11.IDLE: HEAD, h11.h11.SEND_BODY: BODY}  # by what the caller is to send next

    class Bounded(h11.H11Protocol):  # type: ignore[misc, name-defined]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late: asyncio.TimerHandle | None = None
            self._state: object = None
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._state = None  # the next call has its own time
            self._watch()

        def _watch(self) -> None:
            if self.conn.their_state is self._state:
                return
            self._state = self.conn.their_state
            self._unwatch()
            if self._state in owed:
                self._late = self.loop.call_later(owed[self._state], self.transport.abort)

        def _unwatch(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

    return Bounded


def _most_connections() -> int:
    """A quarter of the files that the process may have open."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 200
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(1000, soft // 4)) if soft > 0 else 1000
