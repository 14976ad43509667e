"""HttpServer: an HTTP server in a thread, for as long as a block of code runs. The only file that imports `uvicorn`.

It listens before the block begins, so an address that is taken is said at once, and stops listening when it ends.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from colonnade.errors import ConfigError
from colonnade.extras import need

FIRST_CALL = 20.0  # seconds in which a connection has to begin its first call
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


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except OSError as error:
        made.close()
        why = error.strerror or str(error)
        raise ConfigError(f"cannot listen at {address.host}, port {address.port} ({why}); choose another") from None
    return made


def _bounded() -> Any:
    """Connections that cannot use up the files of the process: few enough, and each begins a call soon or is closed."""
    h11 = need("uvicorn.protocols.http.h11_impl", extra="serve", purpose="Serving pages")

    class Bounded(h11.H11Protocol):  # type: ignore[misc, name-defined]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._first = None
            if len(self.connections) > _most_connections():
                transport.abort()
            else:
                self._first = self.loop.call_later(FIRST_CALL, self._close_idle)

        def _close_idle(self) -> None:
            if self.cycle is None:
                self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._first is not None:
                self._first.cancel()
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
